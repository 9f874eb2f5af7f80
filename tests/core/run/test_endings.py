"""How a run explains what a machine did to it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from made_run import made_run

from grpo.core.run.endings import explained
from grpo.plugins.errors import RunError


def test_a_disk_that_fails_is_a_line_that_says_how_to_go_on(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run")
    says = r"cannot write in .*Make it writable again, then continue with: grpo run --resume"
    with pytest.raises(RunError, match=says), explained(run):
        raise OSError(errno.EIO, os.strerror(errno.EIO))  # as fsync and writes raise it: they name no file


def test_what_a_plugin_does_is_no_trouble_of_the_disk(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run")
    for error in (PermissionError(errno.EPERM, "not yours"), FileNotFoundError(errno.ENOENT, "none", "/no/such/file")):
        with pytest.raises(type(error)), explained(run):
            raise error
