"""Describes the containers of sessions: their contents, removed rights and user.

A session without an image shows the system folders of the engine's machine, read-only, as `local` does; its programs
are an ordinary user. In an image programs are root without any capability, so that they own the image's files. The
container's first process is the other user's, so no program can end it. It ignores the end of its children, so that
orphans leave nothing, and ends with its input, which the owner of the session holds: no program outlives the owner.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from grpo.plugins.errors import SessionError
from grpo.plugins.session import DIRECTORY, HOME, SessionJob
from grpo.rewards.sandbox.container import OWNER, owner
from grpo.rewards.sandbox.inside.seccomp import session_profile
from grpo.rewards.session.request import packed
from grpo.rewards.session.root import below, hidden_places, outermost, system_paths

LABEL = "org.grpo.session"
BUILT = "org.grpo.session.built"
"""The label of images that were built of a Dockerfile; they are kept, and the next build of it takes no time."""
NOBODY, ROOT = "65534:65534", "0:0"
_ALIVE = "trap '' CHLD; exec cat > /dev/null"
_OWN_PROCESSES = 1
_OPEN = ("mnt", "opt", "srv", "tmp", "var/log", "var/tmp")
_FOLDERS = ("dev", "etc", "proc", "root", "run", "sys", "usr", "var")
_MACHINE = "grpo-session"


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a container begins with."""

    image: str  # its name or id
    directory: str = DIRECTORY  # the working directory
    machine: bool = False  # it shows this machine's system folders

    @property
    def user(self) -> str:
        """Who the programs are."""
        return NOBODY if self.machine else ROOT


def settings_of(job: SessionJob, beginning: Beginning, *, quota: bool) -> dict[str, Any]:
    """Returns the arguments with which the SDK creates the container of a session."""
    from docker.types import Mount, Ulimit

    limits = job.limits
    visible = [*(system_paths()[0] if beginning.machine else []), *outermost(job.shared)]
    covered = hidden_places(job.hidden, visible)
    visible += [path for path in map(os.path.normpath, job.shared) if any(below(path, each) for each in covered)]
    return {
        **hardened(),
        "image": beginning.image,
        "command": ["sh", "-c", f"chmod 1777 /; {_ALIVE}" if beginning.machine else _ALIVE],
        "stdin_open": True,
        "user": ROOT if beginning.machine else NOBODY,
        "network_mode": None if job.network else "none",
        "pids_limit": limits.processes + _OWN_PROCESSES,
        "mem_limit": limits.memory_bytes,
        "memswap_limit": limits.memory_bytes,
        "storage_opt": {"size": str(limits.disk_bytes)} if quota else None,
        "ulimits": [
            Ulimit(name="fsize", soft=limits.disk_bytes, hard=limits.disk_bytes),
            Ulimit(name="core", soft=0, hard=0),
        ],
        "volumes": {path: {"bind": path, "mode": "ro"} for path in visible},
        "tmpfs": {path: "size=64k,mode=0755" for path in covered if os.path.isdir(path)},
        "mounts": [Mount(path, os.devnull, type="bind", read_only=True) for path in covered if os.path.isfile(path)],
    }


def hardened() -> dict[str, Any]:
    """Returns the arguments that take from a container what it can do without."""
    return {
        "entrypoint": [],
        "labels": {LABEL: "1", OWNER: owner()},
        "working_dir": "/",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true", f"seccomp={json.dumps(session_profile())}"],
        "ipc_mode": "private",
        "log_config": {"Type": "none"},
        "healthcheck": {"test": ["NONE"]},
    }


def files_of(job: SessionJob, beginning: Beginning) -> bytes:
    """Returns an archive over the root: every session's folders and the job's files. Raises SessionError: bad path."""
    user = int(beginning.user.partition(":")[0])
    folders = {path.lstrip("/") for path in (HOME, *([DIRECTORY] if beginning.directory == DIRECTORY else []))}
    archive = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(packed(job.files, beginning.directory))) as given,
        tarfile.open(fileobj=archive, mode="w") as tar,
    ):
        if beginning.machine:  # what is missing in an image, the engine makes as root's, who the programs are there
            above = {parent.as_posix() for entry in given for parent in PurePosixPath(entry.name).parents}
            folders |= above - {".", *_OPEN, *_FOLDERS}
        for name in sorted(folders):
            tar.addfile(_folder(name, user))
        for entry in given:
            entry.uid = entry.gid = user
            tar.addfile(entry, given.extractfile(entry))
    return archive.getvalue()


def machine_image(client: Any) -> str:
    """Makes the image of a session that shows this machine's folders, unless the engine has it; returns its name."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in sorted({*_OPEN, *_FOLDERS}):
            entry = _folder(name, 0)
            entry.mode = 0o1777 if name in _OPEN else 0o755
            tar.addfile(entry)
        for points_to, path in system_paths()[1]:
            entry = tarfile.TarInfo(path.lstrip("/"))
            entry.type, entry.linkname = tarfile.SYMTYPE, points_to
            tar.addfile(entry)
        user = NOBODY.partition(":")[0]
        for name, text in {
            "etc/passwd": f"root:x:0:0:root:/root:/bin/sh\nagent:x:{user}:{user}::{HOME}:/bin/sh\n",
            "etc/group": f"root:x:0:\nagent:x:{user}:\n",
        }.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    data = archive.getvalue()
    tag = hashlib.sha256(data).hexdigest()[:16]
    if not client.images.list(f"{_MACHINE}:{tag}"):
        client.api.import_image_from_data(data, repository=_MACHINE, tag=tag)
    return f"{_MACHINE}:{tag}"


def built_image(client: Any, folder: str) -> str:
    """Builds the image of a folder with a Dockerfile; returns its id. Raises SessionError with the end of the log."""
    import docker

    if not os.path.isfile(os.path.join(folder, "Dockerfile")):
        raise SessionError(f"there is no {folder}/Dockerfile to build an image of.")
    try:
        image, _ = client.images.build(path=folder, rm=True, forcerm=True, labels={BUILT: folder})
    except docker.errors.BuildError as error:
        lines = [str(line.get("stream") or line.get("error") or "").strip() for line in error.build_log]
        text = " ".join(filter(None, lines))[-600:]
        raise SessionError(f"the image of {folder}/Dockerfile cannot be built: {text}") from error
    except (docker.errors.APIError, TypeError) as error:
        raise SessionError(f"the image of {folder}/Dockerfile cannot be built: {error}") from error
    return str(image.id)


def _folder(name: str, user: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    entry.uid = entry.gid = user
    return entry
