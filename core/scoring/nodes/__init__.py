"""Scores on the nodes of a cluster; a lost node costs no score."""
