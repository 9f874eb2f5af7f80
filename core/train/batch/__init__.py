"""Turns one generation into the input of the policy update: rewards, advantages and padded tensors."""
