"""Scores the shape of a completion, not its content: layout, length, repetition."""
