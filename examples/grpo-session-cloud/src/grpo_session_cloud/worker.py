"""Serves machines of a Harbor provider to the process that started this one.

It runs in a Python of its own, 3.12 or newer with `harbor` installed, and imports nothing else. Requests come as lines
of JSON on stdin, answers leave on stdout in any order, each with the number of its request. When stdin ends, every
machine is removed.
"""

import asyncio
import base64
import json
import logging
import os
import sys
import tempfile
import traceback
import uuid
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment
from harbor.environments.factory import EnvironmentFactory
from harbor.models.environment_type import EnvironmentType
from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.paths import TrialPaths


class Machines:
    """The machines that are open, by number."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.open_ones: dict[int, BaseEnvironment] = {}

    async def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Makes and starts a machine."""
        file, colon, name = request["provider"].rpartition(":")
        if colon:
            sys.path.insert(0, str(Path(file).absolute().parent))
            kind = EnvironmentFactory.get_environment_class(import_path=f"{Path(file).stem}:{name}")
        else:
            kind = EnvironmentFactory.get_environment_class(EnvironmentType(name))
        folder = self.folder / f"{request['machine']}"
        (folder / "environment").mkdir(parents=True)
        mode = NetworkMode.PUBLIC if request["network"] else NetworkMode.NO_NETWORK
        machine = kind(
            environment_dir=folder / "environment",
            environment_name="grpo",
            session_id=f"grpo-{uuid.uuid4().hex[:12]}",
            trial_paths=TrialPaths(folder / "trial"),
            task_env_config=EnvironmentConfig(
                docker_image=request["image"],
                memory_mb=request["memory_mb"],
                storage_mb=request["storage_mb"],
                network_mode=mode,
            ),
            network_policy=NetworkPolicy(network_mode=mode),
            logger=logging.getLogger("grpo"),
            **request["options"],
        )
        self.open_ones[request["machine"]] = machine
        await machine.start(force_build=False)
        return {}

    async def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Runs a command of sh as root; uploads a file before, and downloads files after, if asked to."""
        machine = self.open_ones[request["machine"]]
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            for path, content in request["files"].items():
                (Path(folder) / "up").write_bytes(base64.b64decode(content))
                await machine.upload_file(Path(folder) / "up", path)
            if not request["command"]:
                return {}
            result = await machine.exec(request["command"], cwd="/", user="root", timeout_sec=request["seconds"])
        return {"code": result.return_code, "stdout": result.stdout or "", "stderr": result.stderr or ""}

    async def download(self, request: dict[str, Any]) -> dict[str, Any]:
        """Brings a file to a path of this machine."""
        await self.open_ones[request["machine"]].download_file(request["path"], request["to"])
        return {}

    async def close(self, request: dict[str, Any]) -> dict[str, Any]:
        """Removes a machine."""
        if machine := self.open_ones.pop(request["machine"], None):
            await machine.stop(delete=True)
        return {}

    async def answer(self, line: bytes) -> None:
        """Does what a line asks for, and writes the answer."""
        request = json.loads(line)
        try:
            reply = await getattr(self, request["do"])(request)
        except Exception as error:
            print(traceback.format_exc(), file=sys.stderr, flush=True)
            usage = isinstance(error, (ValueError, TypeError, ImportError))
            reply = {"fault": "usage" if usage else "lost", "text": f"{type(error).__name__}: {error}"}
        os.write(ANSWERS, json.dumps({**reply, "number": request["number"]}).encode() + b"\n")


async def serve() -> None:
    """Answers until stdin ends."""
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory(prefix="grpo-harbor-") as folder:
        machines = Machines(Path(folder))
        under_way: set[asyncio.Task[None]] = set()
        while line := await loop.run_in_executor(None, sys.stdin.buffer.readline):
            task = asyncio.create_task(machines.answer(line))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        for task in [*under_way]:
            task.cancel()
        left = [machine.stop(delete=True) for machine in machines.open_ones.values()]
        await asyncio.gather(*left, *under_way, return_exceptions=True)


ANSWERS = os.dup(1)
os.dup2(2, 1)  # what a provider's library prints is not an answer
os.write(ANSWERS, b"{}\n")
asyncio.run(serve())
