"""The environment `wordle`."""
