"""Runs tests and a solution inside the sandboxes of a judge; it travels there as source."""
