"""Implements the command line: one module for each command, and what several of them print with. Nothing imports it."""
