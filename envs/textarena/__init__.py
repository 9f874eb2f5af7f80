"""Provides the environments `textarena:NAME`: games of TextArena for one player."""
