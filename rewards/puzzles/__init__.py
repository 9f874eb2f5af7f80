"""Countdown and knights and knaves: a completion and a puzzle in, whether it is solved out."""
