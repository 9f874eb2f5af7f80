"""Provides the environment `mcp`."""
