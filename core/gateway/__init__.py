"""Speaks the APIs that agent programs know, and passes their requests to the sampler."""
