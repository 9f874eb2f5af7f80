"""Rows of a prompt and an answer, as they are."""
