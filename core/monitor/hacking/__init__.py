"""Detects that a reward is exploited or that a policy falls apart, and says what the reward pays for."""
