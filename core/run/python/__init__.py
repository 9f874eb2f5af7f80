"""Starts, reads and compares runs from scripts and notebooks: `grpo.train`, `grpo.load`, `grpo.compare`."""
