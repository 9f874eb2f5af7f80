"""Provides the environments `trl:MODULE:CLASS`: classes written for TRL's `environment_factory`."""
