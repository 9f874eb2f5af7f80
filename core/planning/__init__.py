"""Turns a configuration into a `Plan`, or refuses it with a clear error before a model loads.

One module for each topic that is decided.
"""
