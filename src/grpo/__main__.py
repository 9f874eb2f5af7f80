"""`python -m grpo`, also for `torchrun --nproc-per-node 2 -m grpo run ...`."""

import sys
from pathlib import Path

# `python -m` puts the working directory first on the path. In a checkout that is the folder of core/, kernels/ and so
# on, which would stand in front of installed packages of those names.
if sys.path and (Path(sys.path[0]) / "src" / "grpo" / "__main__.py").is_file():
    del sys.path[0]

from grpo.core.cli.entry import main

main()
