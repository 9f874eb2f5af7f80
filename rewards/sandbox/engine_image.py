"""Makes an image of this machine's own Python for a container engine, without a registry.

`python -m grpo.rewards.sandbox.engine_image` makes it in the engine at DOCKER_HOST.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from grpo.rewards.sandbox.docker_pool import connected
from grpo.rewards.sandbox.interpreter import LIBRARIES, default_python, find_interpreter

IMAGE = "grpo-sandbox:python"


def made_image(client: Any) -> str:
    """Makes the image, unless the engine has it already, and returns its name."""
    if client.images.list(IMAGE):
        return IMAGE
    interpreter = find_interpreter(default_python())
    multiarch = next(Path("/usr/lib").glob("*-linux-gnu"), Path("/usr/lib64")).as_posix()
    with tempfile.TemporaryFile() as packed:
        with tarfile.open(fileobj=packed, mode="w") as image:
            paths = [Path(path.replace(LIBRARIES, multiarch)) for _, path in (*interpreter.mounts, *interpreter.links)]
            parents = {parent.as_posix().lstrip("/") or "." for path in paths for parent in path.parents}
            for folder in sorted({*parents, "tmp", "proc", "dev", "etc", "sys"}):
                entry = tarfile.TarInfo(folder)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
                image.addfile(entry)
            for source, target in interpreter.mounts:
                image.add(source, target.replace(LIBRARIES, multiarch).lstrip("/"), filter=_kept)
            for points_to, path in interpreter.links:
                entry = tarfile.TarInfo(path.replace(LIBRARIES, multiarch).lstrip("/"))
                entry.type, entry.linkname = tarfile.SYMTYPE, points_to
                image.addfile(entry)
            secret = b"a secret of the image\n"
            entry = tarfile.TarInfo("etc/shadow")
            entry.size = len(secret)
            image.addfile(entry, io.BytesIO(secret))
        packed.seek(0)
        name, _, tag = IMAGE.partition(":")
        client.api.import_image_from_data(packed.read(), repository=name, tag=tag)
    return IMAGE


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
