"""Reports to the host how each unit of the tests ended, in lines that begin with a secret of the run.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from grpo.rewards.code.guest.loading import silence


def reporter(nonce: str) -> Callable[[list[Any]], None]:
    """Returns what writes a line of the report to standard output, to which nothing else writes from now on."""
    output = os.dup(1)
    silence()

    def report(line: list[Any]) -> None:
        data = f"{nonce} {json.dumps(line)}\n".encode("ascii")
        while data:
            data = data[os.write(output, data) :]

    return report
