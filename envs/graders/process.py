"""Runs grader jobs in processes with limits and an empty environment, where there is no sandbox.

This is no isolation: a program can read files and use the network.
"""

from __future__ import annotations

import importlib
import pickle
import signal
import time
from collections.abc import Callable

from grpo.envs.isolated.child import BECOME
from grpo.envs.isolated.remote import ForkServer
from grpo.plugins.child_process import send_message
from grpo.plugins.sandbox_job import Job, JobResult

_MEMORY = 2**40  # bytes: each job has a limit of its own
_SET = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
_READ = 1 << 16


def load(package: str) -> Callable[[], None]:
    """Imports a package, in the process that forks for each job."""
    importlib.import_module(package)
    return lambda: None


class LimitedProcess:
    """A process that has imported a package and forks for each job; safe in threads."""

    def __init__(self, package: str) -> None:
        options = {"package": package}
        self._server = ForkServer(
            f"graders of {package}", (__name__, load.__name__), options, ["DYLD_LIBRARY_PATH"], _MEMORY, _SET
        )

    def run(self, job: Job) -> JobResult:
        """Runs one job; its files, profile and peer are ignored. Raises PluginError."""
        number, channel = self._server.fork()
        printed, deadline = bytearray(), time.monotonic() + job.limits.wall_seconds
        with channel:
            try:
                channel.settimeout(job.limits.wall_seconds)
                send_message(channel, pickle.dumps((BECOME, (job.program, job.stdin, job.limits), {}), protocol=5))
                while len(printed) <= job.limits.output_bytes and (piece := channel.recv(_READ)):
                    printed += piece
                    channel.settimeout(max(0.001, deadline - time.monotonic()))
                late = len(printed) > job.limits.output_bytes
            except TimeoutError:
                late = True
            except OSError as error:
                return JobResult("sandbox_error", reason=f"the process for graders was lost: {error}")
        if late:
            self._server.kill(number)
        code, stdout = self._server.ending(number), bytes(printed[: job.limits.output_bytes])
        if late:
            return JobResult("time_wall", stdout=stdout)
        if code == -signal.SIGXCPU:
            return JobResult("time_cpu", stdout=stdout)
        return JobResult("signalled", stdout, signal=-code) if code < 0 else JobResult("exited", stdout, exit_code=code)
