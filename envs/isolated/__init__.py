"""Environments of other libraries, each in a process of its own: calls in, what they returned or raised out."""
