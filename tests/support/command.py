"""Runs `grpo` in this process: a start of Python and its imports cost a second for each command of a test."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from grpo.core.cli.main import main


def environment_with(*folders: Path, **variables: str) -> dict[str, str]:
    """Returns the variables of a child that finds the packages of these folders first, then all that this one finds."""
    path = os.pathsep.join(filter(None, [*map(str, folders), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **variables}


class Done(NamedTuple):
    """What a command printed, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


def grpo(*arguments: str, cwd: Path | None = None) -> Done:
    """Runs a command as a shell in a folder would, by default in the present one."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd or Path.cwd()),
        mock.patch.object(sys, "argv", ["grpo", *arguments]),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    return Done(code, stdout.getvalue(), stderr.getvalue())
