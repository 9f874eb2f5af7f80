"""Judges Countdown puzzles and knights and knaves."""
