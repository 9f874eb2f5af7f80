"""Copies the run directory from a machine that shares no disk with this one, whole or not at all."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import IO

from grpo.core.cluster.ray_cluster import RemoteObject
from grpo.plugins.errors import RunError

KIND = "grpo.core.run.ray.download:FolderThere"
PIECE = 8 << 20  # bytes


class FolderThere:
    """Gives a folder away as a tar file, in pieces."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._packed: IO[bytes] | None = None

    def mark(self, message: bytes) -> bytes:
        """Writes a file of that name into the folder, seen by whoever shares the disk; says what is wrong, or b""."""
        try:
            (self._path / message.decode()).touch()
        except OSError:
            return b"no folder"
        return b""

    def unmark(self, message: bytes) -> bytes:
        (self._path / message.decode()).unlink(missing_ok=True)
        return b""

    def piece(self, message: bytes) -> bytes:
        """Returns the bytes from an offset on; none at the end."""
        if self._packed is None:
            self._packed = tempfile.TemporaryFile()  # noqa: SIM115 - until it is closed
            with tarfile.open(fileobj=self._packed, mode="w|") as packed:
                packed.add(self._path, arcname=".")
        self._packed.seek(json.loads(message))
        return self._packed.read(PIECE)

    def close(self, _: bytes) -> bytes:
        if self._packed is not None:
            self._packed.close()
        self._packed = None
        return b""


def fetch(there: RemoteObject, path: Path) -> bool:
    """Pulls a folder over, unless this machine sees the same one; returns whether it had to."""
    mark = f".shared-{os.getpid()}-{os.urandom(4).hex()}"
    if there.ask("mark", mark.encode()).result():
        return False  # the run wrote nothing
    try:
        if (path / mark).exists():
            return False
    finally:
        there.ask("unmark", mark.encode()).result()
    if path.exists() and any(path.iterdir()):
        raise RunError(f"{path} is not empty, so the run directory of the other machine is left there, at {path}.")
    part = path.with_name(f"{path.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    with tarfile.open(fileobj=io.BufferedReader(_Pieces(there), PIECE), mode="r|") as packed:
        packed.extractall(part, filter="data")
    there.ask("close").result()
    if path.exists():
        path.rmdir()
    part.rename(path)
    return True


class _Pieces(io.RawIOBase):
    def __init__(self, there: RemoteObject) -> None:
        self._there = there
        self._offset = 0
        self._have = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        if not self._have:
            self._have = self._there.ask("piece", json.dumps(self._offset).encode()).result()
            self._offset += len(self._have)
        size = min(len(buffer), len(self._have))
        buffer[:size] = self._have[:size]
        self._have = self._have[size:]
        return size
