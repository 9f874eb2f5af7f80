"""Rewards on the nodes of a cluster: tasks in, results out; a lost node costs nobody a score."""
