"""Checks, before anything loads, that the run directory can be written and that its disk has room."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from grpo.core.record.run_dir import RunDir, hardly_begun, in_use, is_run
from grpo.plugins.errors import UsageError


def refuse_unwritable(folder: Path) -> None:
    """Refuses a run directory that cannot be created or that already holds a run. Raises UsageError with the reason."""
    try:
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"--out {folder} is a file. Name a new folder.")
        if is_run(folder):
            if in_use(RunDir(folder)):
                raise UsageError(f"--out {folder}: a run is in progress there. Name a new folder.")
            again = f"grpo run --resume {shlex.quote(str(folder))}"
            raise UsageError(f"--out {folder} is not empty. Name a new folder, or continue it with: {again}")
        if folder.is_dir() and any(folder.iterdir()) and not hardly_begun(folder):
            raise UsageError(f"--out {folder} is not empty. Name a new folder.")
        refuse_readonly(folder)
    except OSError as error:
        raise UsageError(f"--out {folder}: {error.strerror}. Choose a folder that you may write to.") from None


def refuse_readonly(folder: Path) -> None:
    """Refuses a folder that may not be written, or not be made where it does not exist yet."""
    parent = folder
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write in {parent.absolute()}. Choose a folder that you may write to with --out.")


def refuse_full_disk(
    folder: Path,
    needed: int,
    what: str = "the checkpoints",
    remedy: str = "Free some space, choose another disk with --out, or train an adapter with --lora.",
) -> None:
    """Refuses to write `needed` bytes where they cannot fit; the folder need not exist yet."""
    parent = folder
    while not parent.exists():
        parent = parent.parent
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise UsageError(
            f"{what} need{'' if what.endswith('s') else 's'} about {_size(needed)}, but {parent} has {_size(free)} "
            f"free. {remedy}"
        )


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
