"""Measures and tries a model without training it: weights and episodes in, accuracy and answers out."""
