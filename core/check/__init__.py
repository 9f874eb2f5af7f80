"""Is a plugin what it says it is? Rewards, environments and sandboxes in, reports out, before anything trains."""
