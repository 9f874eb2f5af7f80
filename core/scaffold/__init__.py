"""Writes new plugin packages that pass their own tests."""
