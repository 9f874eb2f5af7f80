"""Plays episodes of agent programs: their calls as a tree of token ids, of which each sampled token trains once."""
