"""Runs behind the wall. It travels as source, and imports the standard library and its neighbours alone."""
