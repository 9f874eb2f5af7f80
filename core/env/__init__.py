"""Environments: rows in, episodes out; actions in, observations out."""
