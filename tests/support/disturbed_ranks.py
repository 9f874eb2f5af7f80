"""A run of two processes to be disturbed: its arguments in, and who of it can be killed out."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from forked_command import ONE_THREAD, launched
from patience import RUN

REWARD = """
from grpo import reward

@reward(version=1, range=(0.0, 1.0), isolation="process")
def vowels(completion: str) -> float:
    return sum(letter in "aeiou" for letter in completion) / max(len(completion), 1)
"""


class Ranks:
    """A run of two processes that is being disturbed.

    Args:
        arguments: of `grpo`.
        out: the run directory.
    """

    def __init__(self, arguments: Sequence[str], out: Path) -> None:
        self.out = out
        self._said = out.with_suffix(f".{time.monotonic_ns()}")
        environment = {**os.environ, **ONE_THREAD, "GRPO_TEST": str(out)}
        with self._said.open("wb") as file:
            self.launcher = subprocess.Popen(launched(arguments), stdout=file, stderr=file, env=environment)

    @property
    def said(self) -> str:
        """What the processes said, without the launcher's own lines."""
        lines = self._said.read_text().splitlines()
        return "\n".join(line for line in lines if not re.match(r"[WE]\d{4} ", line))

    def processes(self) -> dict[int, int]:
        """The processes of the run, by their rank."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command, environment = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
            except OSError:
                continue
            rank = re.search(rb"(?:^|\0)RANK=(\d+)", environment)
            ours = f"GRPO_TEST={self.out}".encode() in environment and b"\0-m\0grpo\0" in command
            if rank and ours and b"torch.distributed" not in command:
                found[int(rank[1])] = int(folder.name)
        return found

    def workers(self) -> list[int]:
        """The processes that score."""
        ranks = {*self.processes().values()}
        parents = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
        return [pid for pid, parent in parents.items() if parent in ranks and pid not in ranks]

    def until_step(self, step: int) -> None:
        file, deadline = self.out / "metrics.jsonl", time.monotonic() + RUN
        while not (file.exists() and f'"step": {step},' in file.read_text()):
            assert self.launcher.poll() is None, self.said
            assert time.monotonic() < deadline, "the run never got there"
            time.sleep(0.02)

    def ended_within(self, seconds: float) -> None:
        """Waits for the end of all processes."""
        deadline = time.monotonic() + seconds
        while self.processes():
            assert time.monotonic() < deadline, f"still going: {self.processes()}\n{self.said}"
            time.sleep(0.1)
        self.launcher.wait(RUN)

    def stop(self) -> None:
        for pid in (*self.processes().values(), self.launcher.pid):
            if self.launcher.poll() is None:
                os.kill(pid, signal.SIGKILL)
        self.launcher.wait(RUN)
