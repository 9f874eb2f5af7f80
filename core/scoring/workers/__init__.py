"""Runs rewards in processes of their own; a crash costs one completion."""
