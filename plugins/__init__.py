"""Defines the contract between plugins and the engine, one module for each thing that authors import, and the host."""

if __name__ == "plugins":
    raise ImportError("import this package as grpo.plugins; the folder 'plugins' is not importable under its bare name")
