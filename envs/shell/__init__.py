"""Provides `shell:FILE` and `harbor:FOLDER`: tasks that are solved with a shell, in a session of their own."""
