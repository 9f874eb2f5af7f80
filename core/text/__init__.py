"""Handles text, random numbers and statistics for every folder."""
