"""Checks rewards, environments and sandboxes before anything trains; one module for each kind of plugin."""
