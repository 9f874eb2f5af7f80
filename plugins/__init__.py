"""Defines the contract between plugins and the engine, and the host that finds the plugins.

Authors import these modules; `_host` and `_spec` hold the rest.
"""

if __name__ == "plugins":
    raise ImportError("import this package as grpo.plugins; the folder 'plugins' is not importable under its bare name")
