"""Samples with the policy itself, through transformers."""
