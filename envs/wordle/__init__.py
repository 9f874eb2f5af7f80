"""Provides the environment `wordle`."""
