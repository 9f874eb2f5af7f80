"""Jobs in a process with limits and an empty environment, in the place of a sandbox: a job in, what happened out.

It serves one job at a time; the process is started when it is first needed, and again after it was lost.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading

from grpo.envs.graders.zygote import ANSWER, READY
from grpo.envs.isolated.messages import received, sent
from grpo.plugins.errors import TransientError
from grpo.plugins.sandbox_job import Job, JobResult

_START_SECONDS = 120.0
_SLACK = 30.0
_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from grpo.envs.graders.zygote import main; main(int(sys.argv[2]), sys.argv[3])"
)
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "NLTK_DATA", "DYLD_LIBRARY_PATH", "LD_LIBRARY_PATH")
_SET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}


class LimitedProcess:
    """A process that has imported a library and forks for each job; safe in threads.

    Args:
        package: the library.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        atexit.register(self.close)

    def run(self, job: Job) -> JobResult:
        """Runs one job; its files, its profile and its peer are not known here.

        Raises:
            TransientError: the process cannot be started.
        """
        limits = job.limits
        request = (
            job.program,
            job.stdin,
            limits.cpu_seconds,
            limits.wall_seconds,
            limits.memory_bytes,
            limits.output_bytes,
        )
        data = pickle.dumps(request, protocol=5)
        with self._lock:
            channel = self._started()
            try:
                channel.settimeout(limits.wall_seconds + _SLACK)
                sent(channel, data)
                answer = received(channel)
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
        """Ends the process; the next job starts another."""
        with self._lock:
            self._end()

    def _started(self) -> socket.socket:
        if self._channel is not None and self._process is not None and self._process.poll() is None:
            return self._channel
        self._end()
        ours, theirs = socket.socketpair()
        path = json.dumps([os.path.abspath(entry) for entry in sys.path])  # noqa: PTH100 - '' is the working folder
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-B", "-c", _START, path, str(theirs.fileno()), self._package],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**{name: os.environ[name] for name in _KEPT if name in os.environ}, **_SET},
            )
        self._channel = ours
        ours.settimeout(_START_SECONDS)
        try:
            ready = received(ours)
        except OSError as error:
            ready = str(error).encode()
        if ready != READY:
            self._end()
            raise TransientError(f"the process for the graders of {self._package} does not start: {ready.decode()}")
        return ours

    def _end(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._channel = self._process = None
