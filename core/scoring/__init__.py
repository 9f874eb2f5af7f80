"""Scoring: completions in, an outcome for each reward and completion out; a failure is never a zero.

One module for each place where a reward runs, and one for each form of what it says.
"""
