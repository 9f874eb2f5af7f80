"""Sampling, by the policy or an engine with a proven copy: token ids in, token ids and log-probabilities out."""
