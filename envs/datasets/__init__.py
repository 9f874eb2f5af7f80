"""Reads rows from files, folders and the hub, or makes them from a seed; one module for each form."""
