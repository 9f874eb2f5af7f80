"""`python -m grpo`, also for `torchrun --nproc-per-node 2 -m grpo run ...`."""

from grpo.core.cli.entry import main

main()
