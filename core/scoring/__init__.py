"""Scores completions: each reward gives each completion one outcome. A failure is never a zero.

One module for each place where a reward runs, and one for each form of what it says.
"""
