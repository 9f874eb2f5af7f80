"""Trains on demonstrations before the first rollout (supervised warm-up)."""
