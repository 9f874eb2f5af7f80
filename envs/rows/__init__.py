"""Provides the environment `rows`: prompts and answers of the user's own."""
