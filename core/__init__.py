"""The engine and the command line: rows in, a trained policy and a complete record out."""

if __name__ == "core":
    raise ImportError("import this package as grpo.core; the folder 'core' is not importable under its bare name")
