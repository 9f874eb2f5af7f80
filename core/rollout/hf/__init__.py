"""Rollouts by the policy itself, through transformers."""
