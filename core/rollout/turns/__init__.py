"""Plays rollouts of several turns, whose tokens are sampled or observed."""
