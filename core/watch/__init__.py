"""Runs looked at in a browser while they go on: a folder in, pages that follow it out."""
