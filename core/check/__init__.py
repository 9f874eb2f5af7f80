"""Is a plugin what it says it is? Rewards, environments and sandboxes in, reports out, before anything trains.

One module for each kind of plugin, and one for each family of relations.
"""
