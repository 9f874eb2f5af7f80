"""Provides the verifier and the reward `math`; one module for each form of mathematics or step of a comparison."""
