"""Provides the verifier and the reward `math`: whether a completion and the gold are the same mathematics."""
