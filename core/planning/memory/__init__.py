"""Counts the memory of a run before anything loads, and finds settings that fit."""
