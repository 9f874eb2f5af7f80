"""`grpo` in a process of its own, to be killed, interrupted or limited: forked from one that has the libraries.

The process differs from one that a shell starts in this alone: it
need not load torch and trl first, which takes longer than a run of a few steps. `in_two_processes` starts it as a user
does, by torchrun.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # as `grpo` sets it before it loads torch
# No process that is forked may use a GPU if the one it comes from has looked for it.
_HAS_GPU = Path("/dev/nvidiactl").exists()
_CONTEXT = multiprocessing.get_context("spawn") if _HAS_GPU else multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["grpo.core.run.job", "grpo.core.train.trainer", "grpo.core.cli.main", "matplotlib.pyplot"]
)


class Forked:
    """A running command.

    Args:
        arguments: of `grpo`.
        said: the file that gets its stdout and stderr.
        largest_file: bytes that any file may have, as if the disk were full beyond.
        output: where stdout goes instead, opened in the process; a terminal becomes that of stderr and stdin, too.
        session: in a session of its own, whose terminal `output` becomes.
        closed: descriptors that are closed.
        variables: added to the environment of the process that all are forked from.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        said: Path,
        *,
        largest_file: int | None = None,
        output: str | None = None,
        session: bool = False,
        closed: Sequence[int] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._said, self._output = said, output
        how = (list(arguments), str(said), largest_file, output, session, tuple(closed), dict(variables or {}))
        self.process = _CONTEXT.Process(target=_command, args=how)
        self.process.start()

    @property
    def said(self) -> str:
        return self._said.read_text() if self._said.exists() else ""

    @property
    def printed(self) -> str:
        """What went to the file that is its stdout."""
        assert self._output is not None
        return Path(self._output).read_text()

    @property
    def ended(self) -> bool:
        return not self.process.is_alive()

    def signal(self, number: int) -> None:
        """Sends a signal, unless the command has ended meanwhile."""
        pid = self.process.pid
        assert pid is not None
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    def wait(self, seconds: float) -> int:
        """Waits for the end and returns the exit code, negative for a signal."""
        self.process.join(seconds)
        code = self.process.exitcode
        assert code is not None, f"still going after {seconds} s: {self.said}"
        return code


def launched(arguments: Sequence[str], processes: int = 2) -> list[str]:
    """Returns the command that runs `grpo` in processes that train together."""
    number = str(processes)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", number, "-m", "grpo"]
    return [*launcher, *arguments]


ONE_THREAD = {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def in_two_processes(arguments: Sequence[str], code: int = 0, processes: int = 2) -> subprocess.CompletedProcess[str]:
    """Runs `grpo` in two processes, or more, that train together, and returns it when it ended with this code."""
    from patience import RUN  # it loads pytest, which the processes need not

    command, environment = launched(arguments, processes), {**os.environ, **ONE_THREAD}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=RUN, check=False)
    assert done.returncode == code, done.stderr[-3000:]
    return done


def forked_together(
    arguments: Sequence[str], folder: Path, code: int = 0, processes: int = 2
) -> subprocess.CompletedProcess[str]:
    """Does the same with forked processes (`started_together`)."""
    from patience import RUN  # it loads pytest, which the processes need not

    ranks = started_together(arguments, folder, processes)
    try:
        codes = [one.wait(RUN) for one in ranks]
    finally:
        for one in ranks:
            if not one.ended:
                one.signal(signal.SIGKILL)
    out, errors = "".join(one.printed for one in ranks), "".join(one.said for one in ranks)
    assert codes == [code] * processes, errors[-3000:]
    return subprocess.CompletedProcess(list(arguments), code, out, errors)


def started_together(arguments: Sequence[str], folder: Path, processes: int = 2) -> list[Forked]:
    """Starts forked processes that train together, numbered as SLURM numbers them: without a launcher that ends them.

    Args:
        arguments: of `grpo`.
        folder: for what they say.
        processes: how many.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = folder / f"said{time.monotonic_ns()}"
    place.mkdir()
    ranks: list[Forked] = []
    for rank in map(str, range(processes)):
        variables = {"RANK": rank, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        variables |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
        (place / f"out{rank}").touch()
        ranks.append(Forked(arguments, place / f"err{rank}", output=str(place / f"out{rank}"), variables=variables))
    return ranks


def _command(
    arguments: list[str],
    said: str,
    largest_file: int | None,
    output: str | None,
    session: bool,
    closed: tuple[int, ...],
    variables: dict[str, str],
) -> None:
    import resource

    import torch

    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    if session:
        os.setsid()
    if output is not None:
        other = os.open(output, os.O_RDWR if session else os.O_WRONLY)
        for number in (0, 1, 2) if session else (1,):
            os.dup2(other, number)
    for number in closed:
        os.close(number)
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    torch.set_num_threads(1)
    os.environ.update(variables, COLUMNS="200")
    sys.argv = ["grpo", *arguments]
    runpy.run_module("grpo", run_name="__main__")
