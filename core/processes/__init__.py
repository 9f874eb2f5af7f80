"""Several processes that behave as one run."""
