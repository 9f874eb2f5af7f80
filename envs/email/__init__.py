"""Provides the environment `email`."""
