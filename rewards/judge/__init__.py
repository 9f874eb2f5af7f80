"""Provides the reward `judge`: a language model's score by a rubric."""
