"""Provides rewards and the verifier for word problems whose answer is a number."""
