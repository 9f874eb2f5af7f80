"""The run directory: what a run leaves behind, and who reads it."""
