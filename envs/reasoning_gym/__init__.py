"""Provides the environments `reasoning_gym:NAME`: procedural problems with their own graders."""
