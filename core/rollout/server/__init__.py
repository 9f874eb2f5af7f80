"""A rollout engine behind HTTP: its server, its client, and what both say to each other."""
