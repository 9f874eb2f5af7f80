"""New weights to a rollout engine, and the proof that they arrived."""
