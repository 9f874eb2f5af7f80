"""Shows runs in a browser while they go on."""
