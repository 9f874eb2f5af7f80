"""Samples completions, by the policy or by an engine with a verified copy of its weights."""
