"""Serves a rollout engine over HTTP: server, client and protocol."""
