"""Provides the environments `gym:ID`: any registered gymnasium environment, played by text."""
