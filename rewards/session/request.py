"""Checks requests to a session: files, which it packs at their paths inside, commands, variables."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from grpo.plugins.errors import SessionError
from grpo.plugins.session import HOME, SessionJob

_WRITTEN = 10**9  # the time of every file, so that two sessions show the same; in seconds since 1970


def most_files(disk_bytes: int) -> int:
    """Returns how many files a session may have, by how many bytes they may have."""
    return max(4096, disk_bytes // 4096)


def absolute(path: str, directory: str) -> str:
    """Returns the absolute path in a session: below the working directory, or HOME for `~/`. Raises SessionError."""
    if not path or "\0" in path:
        raise SessionError(f"{path!r} is no path in a session.")
    return str(PurePosixPath(HOME, path[2:]) if path.startswith("~/") else PurePosixPath(directory, path))


def refuse_missing(shared: Sequence[str]) -> None:
    """Refuses to share what this machine does not have. Raises SessionError."""
    for path in shared:
        if not os.path.isabs(path) or not os.path.exists(path):
            raise SessionError(f"{path!r} cannot be shared with a session: it is not an absolute path of a file.")


def packed(files: Mapping[str, bytes], directory: str) -> bytes:
    """Returns files as a tar archive over the root. Raises SessionError: a path leads outside or names no file."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, content in files.items():
            whole = absolute(path, directory)
            if path.endswith("/") or ".." in PurePosixPath(whole).parts or whole == "/":
                raise SessionError(f"{path!r} cannot be the path of a file in a session.")
            entry = tarfile.TarInfo(whole.lstrip("/"))
            entry.size, entry.mode, entry.mtime = len(content), 0o644, _WRITTEN
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


def unfit(argv: Sequence[str]) -> str:
    """Returns why words cannot be a program and its arguments, or ""."""
    if not argv:
        return "no program is named"
    return "an argument has a zero byte" if any("\0" in word for word in argv) else ""


def environment_of(job: SessionJob) -> dict[str, str]:
    """Returns the variables of every command, without PATH unless the job names it."""
    return {"HOME": HOME, "LANG": "C.UTF-8", "TMPDIR": "/tmp", "USER": "agent", **job.environment}
