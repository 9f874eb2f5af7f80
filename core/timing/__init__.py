"""Measures where the time of a run goes, estimates what is left, and advises what would make it faster."""
