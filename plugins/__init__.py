"""Defines the contract between plugins and the engine, and the host that finds the plugins.

Authors import these modules, so each stands here under its own name; `_host` and `_spec` hold what they do not.
"""

if __name__ == "plugins":
    raise ImportError("import this package as grpo.plugins; the folder 'plugins' is not importable under its bare name")
