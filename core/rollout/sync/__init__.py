"""Syncs new weights to a rollout engine and verifies that they arrived."""
