"""Provides the environments `verifiers:ID`: tasksets of the verifiers library."""
