"""Writes and reads the run directory."""
