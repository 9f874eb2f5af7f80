"""Runs grader jobs in a process with limits and an empty environment, where there is no sandbox.

It serves one job at a time; the process is started when it is first needed, and again after it was lost.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import socket
import subprocess
import threading

from grpo.envs.graders.zygote import ANSWER, READY
from grpo.plugins.child_process import ChildProcess, receive_message, send_message
from grpo.plugins.errors import TransientError
from grpo.plugins.sandbox_job import Job, JobResult

_START_SECONDS = 120.0
_SLACK = 30.0
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "NLTK_DATA", "DYLD_LIBRARY_PATH", "LD_LIBRARY_PATH")
_SET = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONDONTWRITEBYTECODE"), "1"),
    "PYTHONHASHSEED": "0",
}


class LimitedProcess:
    """A process that has imported a library and forks for each job; safe in threads."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None
        atexit.register(self.close)

    def run(self, job: Job) -> JobResult:
        """Runs one job; its files, its profile and its peer are not known here. Raises TransientError."""
        data = pickle.dumps((job.program, job.stdin, job.limits), protocol=5)
        with self._lock:
            channel = self._started()
            try:
                channel.settimeout(job.limits.wall_seconds + _SLACK)
                send_message(channel, data)
                answer = receive_message(channel)
            except OSError as error:
                self._end()
                return JobResult("sandbox_error", reason=f"the process for graders was lost: {error}")
        status, late, cpu, wall = ANSWER.unpack_from(answer)
        printed = answer[ANSWER.size :]
        if late:
            return JobResult("time_wall", stdout=printed, cpu_seconds=cpu, wall_seconds=wall)
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGXCPU:
            return JobResult("time_cpu", stdout=printed, cpu_seconds=cpu, wall_seconds=wall)
        if code < 0:
            return JobResult("signalled", stdout=printed, signal=-code, cpu_seconds=cpu, wall_seconds=wall)
        return JobResult("exited", stdout=printed, exit_code=code, cpu_seconds=cpu, wall_seconds=wall)

    def close(self) -> None:
        with self._lock:
            self._end()

    def _started(self) -> socket.socket:
        if self._child is not None and not self._child.gone():
            return self._child.channel
        self._end()
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        self._child = ChildProcess(
            "grpo.envs.graders.zygote",
            [self._package],
            environment={**kept, **_SET},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        channel = self._child.channel
        channel.settimeout(_START_SECONDS)
        try:
            ready = receive_message(channel)
        except OSError as error:
            ready = str(error).encode()
        if ready != READY:
            self._end()
            raise TransientError(f"the process for the graders of {self._package} does not start: {ready.decode()}")
        return channel

    def _end(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None
