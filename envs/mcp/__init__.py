"""The environment `mcp`."""
