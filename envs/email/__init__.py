"""The environment `email`."""
