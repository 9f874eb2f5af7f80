"""Checks rewards, environments and sandboxes before anything trains.

One module for each kind of plugin, and one for each family of relations.
"""
