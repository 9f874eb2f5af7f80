"""Turns rows into episodes and steps environments; one module for each part of an episode and each place to run it."""
