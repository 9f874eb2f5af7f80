"""Starts the command line: Ctrl-C ends it in one line also while its modules are imported."""

from __future__ import annotations

import os
import signal
from typing import NoReturn


def main() -> NoReturn:
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, _end_at_once)
    from grpo.core.cli.main import main as run_command

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_command()


def _end_at_once(number: int, frame: object) -> NoReturn:
    os.write(2, b"grpo: interrupted\n")
    os._exit(130)
