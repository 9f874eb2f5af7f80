"""Decides and refuses before a model loads: a configuration in, a `Plan` or a clear error out.

One module for each topic that is decided.
"""
