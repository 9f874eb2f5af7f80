"""Rewards in processes of their own: tasks in, results out; a crash costs one completion."""
