"""Provides the environments `openenv:URL`: sessions on an OpenEnv server."""
