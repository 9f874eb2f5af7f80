"""Detects reward hacking and policy collapse, and describes what the reward pays for."""
