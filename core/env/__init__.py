"""Turns rows into episodes and steps environments."""
