"""Built-in rewards and verifiers."""

if __name__ == "rewards":
    raise ImportError("import this package as grpo.rewards; the folder 'rewards' is not importable under its bare name")
