"""Samples with vLLM in this process, from a verified copy of the policy."""
