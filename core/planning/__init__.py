"""Turns a configuration into a `Plan`, or refuses it before a model loads; one module for each topic."""
