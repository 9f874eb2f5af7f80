"""Reads tasks in Harbor's form."""
