"""Decides what is sampled for a step and when: ahead of time, in parts, again, and with verified weights."""
