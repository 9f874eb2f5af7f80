"""Renders runs as one self-contained HTML page; one module for each thing that a page holds."""
