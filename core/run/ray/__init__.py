"""Runs a job on a Ray cluster: where its processes go, what they report, and how its folder comes back."""
