"""Provides the environment `python-tool`."""
