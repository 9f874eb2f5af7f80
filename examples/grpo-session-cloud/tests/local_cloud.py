"""Stands in for a cloud: an environment of Harbor's whose machines are namespaces of this machine."""

import asyncio
import os
import subprocess
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities

OWN = """set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 none /mnt
cd /mnt
mkdir -m 1777 tmp && mkdir opt home proc dev
for path in /usr /etc /bin /sbin /lib /lib64; do
  if [ -L $path ]; then cp -P $path .; elif [ -d $path ]; then mkdir .$path && mount --bind $path .$path; fi
done
mount --rbind /dev dev
mount -t proc none proc
echo up
exec chroot . sleep 2147483647"""
"""Makes a root in memory that shows the programs of this machine."""


class LocalCloud(BaseEnvironment):  # type: ignore[misc]
    """A machine with a process table and a root of its own; `fails` names what it cannot do."""

    def __init__(self, *arguments: object, fails: str = "", **settings: object) -> None:
        self.fails = fails
        super().__init__(*arguments, **settings)

    @staticmethod
    def type() -> str:
        return "local-cloud"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities()

    def _validate_definition(self) -> None:
        pass

    async def start(self, force_build: bool) -> None:
        if self.fails == "start":
            raise RuntimeError("no machine is free")
        flags = ["--mount", "--pid", "--net", "--fork", "--kill-child"]
        self.first = subprocess.Popen(["unshare", *flags, "sh", "-c", OWN], stdout=subprocess.PIPE, text=True)
        assert self.first.stdout is not None
        assert self.first.stdout.readline() == "up\n"
        [self.pid] = Path(f"/proc/{self.first.pid}/task/{self.first.pid}/children").read_text().split()
        (Path(os.environ["LOCAL_CLOUD"]) / self.pid).touch()

    async def stop(self, delete: bool) -> None:
        if self.fails != "start":
            self.first.kill()
            self.first.wait()
            (Path(os.environ["LOCAL_CLOUD"]) / self.pid).unlink()

    async def _inside(self, *argv: str, stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
        if self.first.poll() is not None:
            raise RuntimeError("the machine is gone")
        inside = ("nsenter", "--target", self.pid, "--mount", "--pid", "--net", "--root", *argv)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*inside, stdin=pipe, stdout=pipe, stderr=pipe)
        out, err = await process.communicate(stdin)
        return process.returncode or 0, out, err

    async def exec(self, command: str, *_: object, **__: object) -> ExecResult:
        code, out, err = await self._inside("sh", "-c", command)
        return ExecResult(return_code=code, stdout=out.decode(errors="replace"), stderr=err.decode(errors="replace"))

    async def upload_file(self, source_path: Path | str, target_path: Path | str) -> None:
        code, _, err = await self._inside("tee", str(target_path), stdin=Path(source_path).read_bytes())
        if code:
            raise RuntimeError(err.decode())

    async def download_file(self, source_path: Path | str, target_path: Path | str) -> None:
        code, out, err = await self._inside("cat", str(source_path))
        if code:
            raise RuntimeError(err.decode())
        Path(target_path).write_bytes(out)

    async def upload_dir(self, source_dir: Path | str, target_dir: Path | str) -> None:
        raise NotImplementedError

    async def download_dir(self, source_dir: Path | str, target_dir: Path | str) -> None:
        raise NotImplementedError
