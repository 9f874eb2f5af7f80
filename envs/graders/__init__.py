"""Runs graders of other libraries in sandboxed processes of their own."""
