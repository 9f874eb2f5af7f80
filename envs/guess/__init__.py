"""Provides the environment `guess`."""
