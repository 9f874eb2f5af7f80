"""The environment `guess`."""
