"""Provides the environment `gsm8k`."""
