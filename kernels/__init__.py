"""Memory-efficient kernels, each with a plain-torch reference."""

if __name__ == "kernels":
    raise ImportError("import this package as grpo.kernels; the folder 'kernels' is not importable under its bare name")
