"""Merges files and flags into one frozen, validated configuration."""
