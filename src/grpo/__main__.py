"""`python -m grpo`, also for `accelerate launch -m grpo run ...`."""

from grpo.core.cli import main

main()
