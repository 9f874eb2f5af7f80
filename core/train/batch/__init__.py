"""Turns one generation into what a policy is trained on: rewards, advantages and padded tensors."""
