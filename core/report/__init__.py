"""Renders runs as one self-contained HTML page.

One module for each thing that a page holds.
"""
