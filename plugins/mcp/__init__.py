"""Gives environments the tools of MCP servers, one server for each episode."""
