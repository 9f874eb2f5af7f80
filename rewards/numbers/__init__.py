"""Reads numbers and quantities in what people and models write, exactly."""
