"""Built-in environments."""

if __name__ == "envs":
    raise ImportError("import this package as grpo.envs; the folder 'envs' is not importable under its bare name")
