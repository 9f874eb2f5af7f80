"""Connects several machines: objects live on a cluster's nodes and answer messages."""
