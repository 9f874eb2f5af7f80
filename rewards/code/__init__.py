"""Judges a program by the tests of its row; one module for each question about tests. `guest` runs in sandboxes."""
