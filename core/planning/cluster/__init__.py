"""Estimates what a step costs on a cluster, from published figures of hardware."""
