"""The environment `gsm8k`."""
