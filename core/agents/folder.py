"""Writes the files of an episode into a folder of its own and reads back those that its agent changed.

Nothing is written elsewhere, whatever path a task names. When files are read back no link is followed and nothing but
plain files is opened, within limits.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

# How many files may be written or are read back, how large they may be together, and how large one that is read.
MOST_FILES, MOST_BYTES, LARGEST_FILE = 1000, 16 << 20, 1 << 20
_MOST_ENTRIES = 20_000
_DEEPEST = 64
OWN = _DIRECTORY, _HOME = "work", "home"
TEMPORARY = "/tmp"
PLACES = (TEMPORARY, "/var/tmp")  # what every agent has for itself where namespaces are allowed


class BadFiles(Exception):
    """Files that cannot be written for an agent."""


class Folder:
    """The folder of one episode, at an empty `path`; `namespaces`: the agent sees it at every agent's paths."""

    def __init__(self, path: Path, *, namespaces: bool) -> None:
        self.path = path
        self._inside = path / "tmp"
        self._written: dict[str, str] = {}
        self.temporary = TEMPORARY if namespaces else str(self._inside)
        self.directory = f"{self.temporary}/{_DIRECTORY}"
        self.home = f"{self.temporary}/{_HOME}"
        for name in OWN:
            (self._inside / name).mkdir(parents=True)
        (path / "var").mkdir()

    @property
    def places(self) -> list[tuple[str, str]]:
        """What to mount where: (folder of the episode, path)."""
        return [(str(self._inside), PLACES[0]), (str(self.path / "var"), PLACES[1])]

    def keep(self, entry: str) -> tuple[str, str]:
        """Prepares to keep visible an entry of one of `PLACES`; returns what to mount where."""
        place, name = os.path.split(entry)
        target = (self._inside if place == PLACES[0] else self.path / "var") / name
        if Path(entry).is_dir():
            target.mkdir(exist_ok=True)
        else:
            target.touch()
        return entry, str(target)

    def write(self, files: Mapping[str, str]) -> None:
        """Writes files to paths in the working directory, or below `~/`. Raises BadFiles: too many, or elsewhere."""
        size = sum(len(text) for text in files.values())
        if len(files) > MOST_FILES or size > MOST_BYTES:
            raise BadFiles(
                f"{len(files)} files of {size} characters are to be written; at most {MOST_FILES} files and "
                f"{MOST_BYTES} characters are"
            )
        for name, text in files.items():
            inside = name.removeprefix("~/")
            parts = PurePosixPath(inside).parts
            if not parts or parts[0] == "/" or ".." in parts or "\0" in name or inside.endswith("/"):
                raise BadFiles(f"the path {name!r} is not that of a file below the working directory")
            target = self._inside / (_DIRECTORY if inside == name else _HOME) / Path(*parts)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
            except OSError as error:
                raise BadFiles(f"the file {name!r} cannot be written: {error.strerror}") from error
            if inside == name:
                self._written[PurePosixPath(*parts).as_posix()] = text

    def stdin(self, text: str) -> str:
        """Writes the agent's standard input; returns the path, or ""."""
        if not text:
            return ""
        path = self.path / "stdin"
        path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
        return str(path)

    def changed(self) -> tuple[dict[str, str | None], int]:
        """Returns the files of the working directory that the agent made, changed or deleted, and how many it omits."""
        root = self._inside / _DIRECTORY
        changed: dict[str, str | None] = {}
        there: set[str] = set()
        size = omitted = 0
        for path, entry in _plain_files(str(root)):
            there.add(path)
            text = None
            if entry.st_size <= LARGEST_FILE and len(changed) < MOST_FILES and size + entry.st_size <= MOST_BYTES:
                text = _text(root / path)
            if text is None:
                omitted += 1
            elif text != self._written.get(path):
                changed[path] = text
                size += entry.st_size
        changed |= {path: None for path in self._written if path not in there and not _is_file(root / path)}
        return changed, omitted

    def remove(self) -> None:
        try:
            shutil.rmtree(self.path)
        except (OSError, RecursionError):  # folders that may not be read, or too many in each other for Python
            subprocess.run(["chmod", "-R", "u+rwx", str(self.path)], capture_output=True, check=False)
            subprocess.run(["rm", "-rf", "--", str(self.path)], capture_output=True, check=False)


def _plain_files(root: str) -> Iterator[tuple[str, os.stat_result]]:
    entries = 0
    waiting = [("", 0)]
    while waiting:
        below, depth = waiting.pop()
        try:
            with os.scandir(os.path.join(root, below)) as listing:  # noqa: PTH118
                names = sorted(entry.name for _, entry in zip(range(_MOST_ENTRIES), listing, strict=False))
        except OSError:
            continue
        folders = []
        for name in names:
            entries += 1
            if entries > _MOST_ENTRIES:
                return
            path = f"{below}/{name}" if below else name
            try:
                entry = os.lstat(os.path.join(root, path))  # noqa: PTH118
            except OSError:
                continue
            if stat.S_ISDIR(entry.st_mode) and depth < _DEEPEST:
                folders.append((path, depth + 1))
            elif stat.S_ISREG(entry.st_mode):
                yield os.fsencode(path).decode(errors="backslashreplace"), entry
        waiting += reversed(folders)


def _text(path: Path) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:  # noqa: PTH123
            return file.read(LARGEST_FILE).decode(errors="replace")
    except OSError:
        return None


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False
