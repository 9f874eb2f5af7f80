"""A run in the terminal while it goes on."""
