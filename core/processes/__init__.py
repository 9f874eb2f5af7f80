"""Makes several processes behave as one run."""
