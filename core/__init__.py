"""Holds the engine and the command line, which make a trained policy and a complete record from rows."""

if __name__ == "core":
    raise ImportError("import this package as grpo.core; the folder 'core' is not importable under its bare name")
