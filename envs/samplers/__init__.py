"""Provides the built-in samplers."""
