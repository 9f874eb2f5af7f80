"""Makes an image of this machine's own Python for a container engine, without a registry.

`python -m grpo.rewards.sandbox.engine_image` makes it in the engine at DOCKER_HOST.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpo.rewards.sandbox.docker_pool import connected
from grpo.rewards.sandbox.interpreter import LIBRARIES, default_python, find_interpreter, library_mounts
from grpo.rewards.sandbox.profiles import libraries_of

IMAGE = "grpo-sandbox:python"


def made_image(client: Any, image: str = IMAGE, programs: Sequence[str] = ()) -> str:
    """Makes the image, unless the engine has it, with those `programs` that this machine has; returns its name."""
    if client.images.list(image):
        return image
    interpreter = find_interpreter(default_python())
    paths_of_programs = {name: shutil.which(name) for name in programs}
    more = [(os.path.realpath(path), f"/usr/bin/{name}") for name, path in paths_of_programs.items() if path]
    libraries = sorted({library for source, _ in more for library in libraries_of(source)})
    more_mounts, more_links = library_mounts(libraries)
    mounts = [*dict.fromkeys((*interpreter.mounts, *more, *more_mounts))]
    links = [*dict.fromkeys((*interpreter.links, *more_links, *([("usr/bin", "/bin")] if programs else [])))]
    multiarch = next(Path("/usr/lib").glob("*-linux-gnu"), Path("/usr/lib64")).as_posix()
    with tempfile.TemporaryFile() as packed:
        with tarfile.open(fileobj=packed, mode="w") as archive:
            paths = [Path(path.replace(LIBRARIES, multiarch)) for _, path in (*mounts, *links)]
            parents = {parent.as_posix().lstrip("/") or "." for path in paths for parent in path.parents}
            for folder in sorted({*parents, "tmp", "proc", "dev", "etc", "sys"}):
                entry = tarfile.TarInfo(folder)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
                archive.addfile(entry)
            for source, target in mounts:
                archive.add(source, target.replace(LIBRARIES, multiarch).lstrip("/"), filter=_kept)
            for points_to, path in links:
                entry = tarfile.TarInfo(path.replace(LIBRARIES, multiarch).lstrip("/"))
                entry.type, entry.linkname = tarfile.SYMTYPE, points_to
                archive.addfile(entry)
            secret = b"a secret of the image\n"
            entry = tarfile.TarInfo("etc/shadow")
            entry.size = len(secret)
            archive.addfile(entry, io.BytesIO(secret))
        packed.seek(0)
        name, _, tag = image.partition(":")
        client.api.import_image_from_data(packed.read(), repository=name, tag=tag)
    return image


def main() -> None:
    client = connected("")
    print(made_image(client))
    client.close()


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = entry.name.split("/")
    if {"site-packages", "test", "idlelib", "ensurepip"} & set(parts) or entry.name.endswith(".a"):
        return None
    entry.uid = entry.gid = 0
    entry.mode |= 0o444 | (0o111 if entry.isdir() else 0)
    return entry


if __name__ == "__main__":
    main()
