"""Scores completions, where a failure is never a zero; one module for each step from a row to its outcomes."""
