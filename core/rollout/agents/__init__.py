"""Plays episodes of agent programs; their calls form a tree of token ids, in which each sampled token trains once."""
