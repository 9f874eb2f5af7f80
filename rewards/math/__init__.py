"""Provides the verifier and the reward `math`; one module for each form of mathematics and each step of a comparison."""
