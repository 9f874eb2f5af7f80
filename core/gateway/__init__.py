"""Speaks the APIs that agent programs know, and hands what they ask to whoever samples."""
