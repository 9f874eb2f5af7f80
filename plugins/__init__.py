"""Defines the contract between plugins and the engine, and the host; `_host` and `_spec` are not for authors."""

if __name__ == "plugins":
    raise ImportError("import this package as grpo.plugins; the folder 'plugins' is not importable under its bare name")
