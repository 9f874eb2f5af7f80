"""Finds, loads and names plugins: one file for each step from an installed entry point to a usable spec."""
