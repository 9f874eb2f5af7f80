"""Judging programs: a completion's program and the tests of its row in, what passed out. Programs run in sandboxes."""
