"""Watches a run for problems that a mean reward hides: zero-signal groups, collapse, reward hacking."""
