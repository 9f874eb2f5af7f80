"""The configuration: files and flags in, one frozen and checked value out."""
