"""The environment `countdown`."""
