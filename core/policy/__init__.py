"""Loads and saves the policy: tokenizer and weights."""
