"""Provides the environment `arithmetic`."""
