"""Runs environments of other libraries in processes of their own."""
