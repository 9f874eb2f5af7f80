"""Environments: rows in, episodes out; actions in, observations out.

One module for each step from a row to an observation.
"""
