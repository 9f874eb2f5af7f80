"""Judges a completion's program by the tests of its row, in sandboxes."""
