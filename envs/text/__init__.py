"""Environments that speak in texts: the space of strings, prompts, one question and one completion."""
