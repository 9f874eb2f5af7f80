"""Starts the command line; imports next to nothing, so that Ctrl-C while modules are imported ends it in one line."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Runs the command line and exits with its code."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, _end_at_once)
    # `python -m` puts the working directory first on the path. In a checkout that is the folder of core/, kernels/ and
    # so on, which would stand in front of installed packages of those names.
    if sys.path and os.path.isfile(f"{sys.path[0]}/src/grpo/__main__.py"):  # noqa: PTH113 - pathlib is slow to import
        del sys.path[0]
    from grpo.core.cli.main import main as run_command

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_command()


def _end_at_once(number: int, frame: object) -> NoReturn:
    os.write(2, b"grpo: interrupted\n")
    os._exit(130)
