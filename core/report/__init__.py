"""A run as one page for reading: run directories in, one HTML file out that needs nothing else.

One module for each thing that a page holds.
"""
