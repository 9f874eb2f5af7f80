"""Provides the environment `code`."""
