"""Turns rows into episodes and steps environments.

One module for each step from a row to an observation.
"""
