"""Computes the update: forward passes, the policy loss, its metrics, the optimizer and their memory."""
