"""Watches a run for what a mean reward does not show: no signal, a policy in trouble, an exploited reward."""
