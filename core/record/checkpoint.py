"""Seals checkpoints, and other folders of weights, and finds the newest whole one.

A checkpoint is whole once it holds complete.json, with size and digest (XXH3, 128 bits) of every other file.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import xxhash

from grpo.core.record.run_dir import (
    RunDir,
    ordinary_modes,
    read_json,
    read_metrics,
    rollout_steps,
    sync,
    whole_file,
    write_json,
)
from grpo.core.text.printable import counted
from grpo.plugins.errors import UsageError

COMPLETE = "complete.json"
_NAME = re.compile(r"checkpoint-[0-9]{1,10}")
_OF_STEP = re.compile(r"(?:step|wasted|trained)-([0-9]{6,10})\.parquet")


def seal(folder: Path) -> None:
    """Declares a folder whole, once its files are synced: records sizes and digests, gives them ordinary modes."""
    ordinary_modes(folder)
    for file in folder.rglob("*"):
        sync(file)
    noted = {name: {"bytes": file.stat().st_size, "xxh3_128": _digest(file)} for name, file in _files(folder)}
    write_json(folder / COMPLETE, {"files": noted})


def damage(folder: Path, *, thorough: bool = True) -> str | None:
    """Returns what a folder lost since it was sealed; `thorough` reads every file, otherwise sizes are compared."""
    try:
        noted = read_json(folder / COMPLETE)
        files = dict(_files(folder))
        for name, own in noted["files"].items() if noted is not None else ():
            if name not in files:
                return f"{name} is missing"
            if files[name].stat().st_size != own["bytes"]:
                return f"{name} has {counted(files[name].stat().st_size, 'byte')}, not {own['bytes']}"
            if thorough and _digest(files[name]) != own["xxh3_128"]:
                return f"{name} is not what was written: its digest differs"
    except OSError as error:
        return f"it cannot be read: {error}"
    except (UsageError, KeyError, TypeError, AttributeError):
        return f"{COMPLETE} holds something else"
    return None


def checkpoint_step(folder: Path) -> int:
    return int(folder.name.rpartition("-")[2])


def checkpoints_of(folder: Path) -> list[Path]:
    """Returns the checkpoints in a folder, newest first; a copy that somebody put beside them is none."""
    named = [checkpoint for checkpoint in folder.glob("checkpoint-*") if _NAME.fullmatch(checkpoint.name)]
    return sorted(named, key=checkpoint_step, reverse=True)


def last_checkpoint(run: RunDir, warned: Callable[[str], None] | None = None) -> Path | None:
    """Returns the newest whole checkpoint of a run, or None, and warns of newer ones that are damaged."""
    for checkpoint in _sealed(run.checkpoints):
        problem = damage(checkpoint)
        if not (checkpoint / COMPLETE).is_file():  # the run that is going on there removes it just now
            continue
        if problem is None:
            return checkpoint
        if warned is not None:
            warned(f"{checkpoint} was damaged and is passed over: {problem}.")
    return None


def newest_step(run: RunDir) -> int:
    """Returns the step of the newest checkpoint by the sizes of its files, 0 where there is none."""
    whole = (folder for folder in _sealed(run.checkpoints) if damage(folder, thorough=False) is None)
    return max(map(checkpoint_step, whole), default=0)


def drop_older(folder: Path, keep: int) -> None:
    """Removes all but the newest whole checkpoints, by their steps, since clocks jump."""
    for checkpoint in _sealed(folder)[keep:]:
        (checkpoint / COMPLETE).unlink(missing_ok=True)  # first: half a checkpoint is none
        shutil.rmtree(checkpoint, ignore_errors=True)


def lost_steps(run: RunDir, step: int, every: int) -> Iterator[str]:
    """Yields which steps up to a checkpoint have no record any more; rollouts are recorded at each `every`-th one."""
    recorded = {"metrics": {row["step"] for row in read_metrics(run)}, "rollouts": {*rollout_steps(run)}}
    for what, steps in recorded.items():
        lost = [number for number in range(1, step + 1, every if what == "rollouts" else 1) if number not in steps]
        if lost:
            which = ", ".join(map(str, lost[:5])) + (", ..." if len(lost) > 5 else "")
            yield f"the {what} of {counted(len(lost), 'step')} were lost: {which}. Curves and reports leave them out."


def rewind(run: RunDir, step: int) -> None:
    """Drops what lies after a step: metrics, rollouts and checkpoints; of those, also what never became whole."""
    kept = [row for row in read_metrics(run) if row["step"] <= step]
    with whole_file(run.metrics) as unfinished:
        unfinished.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    for file in run.rollouts.glob("*-*.parquet"):  # one by one: a killed step may have left only some of its files
        if (match := _OF_STEP.fullmatch(file.name)) and int(match[1]) > step:
            file.unlink()
    for folder in checkpoints_of(run.checkpoints):
        whole = (folder / COMPLETE).is_file() and damage(folder, thorough=False) is None
        if checkpoint_step(folder) > step or not whole:
            shutil.rmtree(folder)


def _sealed(folder: Path) -> list[Path]:
    return [checkpoint for checkpoint in checkpoints_of(folder) if (checkpoint / COMPLETE).is_file()]


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.name != COMPLETE:
            yield str(file.relative_to(folder)), file


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, xxhash.xxh3_128).hexdigest()
