"""Starts agent programs, one for each episode, and ends everything that they started."""
