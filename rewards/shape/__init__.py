"""Scores the shape of a completion, whatever it says: layout, length, repetition."""
