"""The environment `python-tool`."""
