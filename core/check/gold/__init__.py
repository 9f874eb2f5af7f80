"""Plays the gold solution of every row of an environment and reports on it."""
