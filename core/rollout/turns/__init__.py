"""Rollouts of several turns: episodes in, tokens of which some were sampled and some observed out."""
