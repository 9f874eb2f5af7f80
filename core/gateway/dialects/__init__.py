"""Reads the requests of each API into one form, and writes replies and errors as that API does."""
