"""Scores completions: each reward gives each completion one outcome. A failure is never a zero."""
