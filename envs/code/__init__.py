"""The environment `code`."""
