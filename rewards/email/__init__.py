"""Scores e-mails by a rubric and its parts."""
