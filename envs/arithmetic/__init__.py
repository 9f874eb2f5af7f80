"""The environment `arithmetic`."""
