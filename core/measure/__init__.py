"""Measures and tries a model without training it."""
