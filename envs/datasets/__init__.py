"""Data sets: what reads rows from files, folders and the hub, or makes them with a seed.

One module for each source of rows.
"""
