"""Provides the environment `countdown`."""
