"""Reads what a user writes to name a plugin, checks specs, and binds them with their options."""
