"""Runs inside the sandbox. It travels as source, and imports only the standard library and its neighbours."""
