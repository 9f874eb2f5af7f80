"""Reads tasks from a folder: each is a folder with an instruction, files, a grader and perhaps a solution."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grpo.plugins.errors import DatasetError

INSTRUCTION, FILES, GRADER, SOLUTION = "instruction.md", "files", "grader", "solution.sh"
GRADERS = ("grade.sh", "grade.py")
SPLITS = ("train", "test")
_MOST_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Task:
    """One task.

    Attributes:
        name: of its folder.
        instruction: what is asked.
        files: path in the working directory to content.
        grader: path in the grader's folder to content; one of `GRADERS` is among them.
        solution: a script for bash that does the task, or "".
        digest: of everything.
    """

    name: str
    instruction: str
    files: dict[str, bytes]
    grader: dict[str, bytes]
    solution: str
    digest: str

    @property
    def command(self) -> tuple[str, str]:
        """The program that runs the grader, and its file."""
        file = next(name for name in GRADERS if name in self.grader)
        return ("bash" if file.endswith(".sh") else "python3"), file


def folders_of(root: Path, split: str) -> list[Path]:
    """Returns the folders of the tasks of a split: those of its folder, or without such folders all for training.

    Raises:
        DatasetError: there is no such folder, or no task in it.
    """
    if not root.is_dir():
        raise DatasetError(f"no folder '{root}' of tasks (looked in {root.absolute().parent}).")
    divided = any((root / name).is_dir() and not (root / name / INSTRUCTION).is_file() for name in SPLITS)
    if not divided and split == "test":
        raise DatasetError(
            f"{root} has no held-out tasks: put tasks into {root / 'train'} and others into {root / 'test'}, or "
            "measure none with --eval-every 0."
        )
    folder = root / split if divided else root
    tasks = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    if not tasks:
        raise DatasetError(f"{folder} has no tasks. A task is a folder in it with the file {INSTRUCTION}.")
    return tasks


def read_task(folder: Path) -> Task:
    """Reads one task.

    Raises:
        DatasetError: a part of it is missing or cannot be read.
    """
    try:
        instruction = (folder / INSTRUCTION).read_text(encoding="utf-8").strip()
        files, grader = dict(_below(folder / FILES)), dict(_below(folder / GRADER))
        solution = folder / SOLUTION
        text = solution.read_text(encoding="utf-8") if solution.is_file() else ""
    except FileNotFoundError as error:
        raise DatasetError(f"{folder}: a task needs the file {INSTRUCTION}, with what is asked.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{folder}: the task cannot be read: {error}") from error
    if not instruction:
        raise DatasetError(f"{folder / INSTRUCTION} is empty. Write what is asked.")
    if not any(name in grader for name in GRADERS):
        raise DatasetError(
            f"{folder}: no grader. Write {GRADER}/{GRADERS[0]} or {GRADER}/{GRADERS[1]}: it runs in the working "
            "directory when the task is done, and exit status 0 means that it was done right."
        )
    if (size := sum(len(content) for content in (*files.values(), *grader.values()))) > _MOST_BYTES:
        raise DatasetError(f"{folder}: its files have {size} bytes, and at most {_MOST_BYTES} can be used.")
    digest = hashlib.sha256(instruction.encode())
    for part in (files, grader, {SOLUTION: text.encode()}):
        for path, content in part.items():
            digest.update(f"\0{path}\0{len(content)}\0".encode() + content)
    return Task(folder.name, instruction, files, grader, text, digest.hexdigest())


def _below(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yields the files below a folder, none where there is no such folder."""
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path.read_bytes()
