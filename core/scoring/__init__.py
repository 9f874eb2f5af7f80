"""Scoring: completions in, an outcome for each reward and completion out; a failure is never a zero."""
