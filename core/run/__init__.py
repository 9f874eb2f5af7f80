"""Runs one job from its first line to its last: plan, load, train, record, end and resume."""
