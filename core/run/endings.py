"""Ends runs: records how a run ended, explains failures of the machine, and finishes a run that was nearly done."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from grpo.core.display.progress import Progress
from grpo.core.plan import Plan
from grpo.core.processes.rank import is_first
from grpo.core.processes.together import INTERRUPTED
from grpo.core.processes.watch import PeerEnded
from grpo.core.record.checkpoint import COMPLETE, newest_step, seal
from grpo.core.record.run_dir import RunDir, is_run, read_metrics, read_state, write_json
from grpo.core.scoring.executors import processors
from grpo.core.timing.advice import advise, idle_processors
from grpo.core.timing.timeline import timeline
from grpo.core.train.part import StoppedForGood
from grpo.plugins.errors import GrpoError, RunError
from grpo.plugins.events import RunEnded, RunStarted
from grpo.plugins.host import Host

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FOLDER_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOENT)
DISK_MESSAGES = (  # of libraries that keep no errno; the last one is what torch.save makes of a short write
    *(os.strerror(number) for number in (*DISK_ERRORS, errno.EROFS)),
    "inline_container",
)
DISK_FLOOR = 16 * 2**20  # bytes; with less than this free, a failed write is blamed on the full disk
DONE = "done"


@dataclass(frozen=True, slots=True)
class RunSummary:
    path: Path  # the run directory
    status: str  # "done" or "interrupted"
    step: int  # the last step
    # before, after: held-out accuracy, None where it was not measured
    before: float | None
    after: float | None


def summary(run_dir: RunDir, status: str) -> RunSummary:
    """Returns how a run ended, with the accuracies of its record."""
    held_out = [row["held_out/accuracy"] for row in read_metrics(run_dir) if "held_out/accuracy" in row]
    return RunSummary(
        path=run_dir.path,
        status=status,
        step=last_step(run_dir),
        before=held_out[0] if held_out else None,
        after=held_out[-1] if len(held_out) > 1 else None,
    )


def ended(run_dir: RunDir, status: str, host: Host, progress: Progress, plan: Plan) -> None:
    """Notes that a run is done or was interrupted between steps, and tells what became of its time."""
    step = last_step(run_dir)
    set_state(run_dir, status, step)
    observe(host, RunEnded(str(run_dir.path), step, status))
    progress.ended(status, run_dir.path, step)
    if status == DONE and is_first():
        rows = read_metrics(run_dir)
        spent, times = timeline(rows, whole=True), timeline(rows)
        advice = advise(times, plan.config, plan.rewards, processors(), idle_processors())
        progress.timed(spent.text(), spent.tokens(), advice[0].text() if advice else None)


def broken_off(run_dir: RunDir, error: BaseException, host: Host, progress: Progress) -> None:
    """Notes that a run was interrupted within a step, or failed, and which steps it has to do again."""
    how = "interrupted" if asked_for(error) else "failed"
    step = last_step(run_dir)
    observe(host, RunEnded(str(run_dir.path), step, how))
    with suppress(OSError):  # where even this cannot be written, the free lock says that nobody runs here any more
        set_state(run_dir, how, step)
    if not isinstance(error, StoppedForGood) and (lost := lost_steps(run_dir, step)) is not None:
        progress.warned(lost)
    if how == "interrupted":
        progress.ended(how, run_dir.path, step)


def finish(run_dir: RunDir, warned: Callable[[str], None]) -> bool:
    """Seals the model of a run, draws its curves and notes that it is done; False where it was done already."""
    if read_state(run_dir).get("status") == DONE:
        return False
    if not (run_dir.model / COMPLETE).is_file():
        seal(run_dir.model)
    draw_curves(run_dir, warned)
    set_state(run_dir, DONE, last_step(run_dir))
    return True


def draw_curves(run_dir: RunDir, warned: Callable[[str], None]) -> None:
    """Draws reward.png; a run that is over is not a failed one because its picture is."""
    try:
        from grpo.core.display.plot import plot_metrics

        plot_metrics(read_metrics(run_dir), run_dir.plot)
    except Exception as error:
        warned(f"{run_dir.plot} could not be drawn: {type(error).__name__}: {error}")


def set_state(run_dir: RunDir, status: str, step: int) -> None:
    """Notes how a run is doing, and since when."""
    if is_first():
        write_json(run_dir.state, {"status": status, "step": step, "updated": time.strftime("%Y-%m-%d %H:%M:%S")})


def lost_steps(run_dir: RunDir, step: int) -> str | None:
    """Says which steps a run that stops here has to do again, or returns None."""
    kept = newest_step(run_dir)
    if step <= kept or not is_first():
        return None
    which = f"step {step}" if step == kept + 1 else f"steps {kept + 1} to {step}"
    since = f"the last complete checkpoint is of step {kept}" if kept else "there is no complete checkpoint yet"
    return f"{which} will be done again when the run resumes: {since}."


def last_step(run_dir: RunDir) -> int:
    rows = read_metrics(run_dir)
    return int(rows[-1]["step"]) if rows else 0


@contextmanager
def explained(run_dir: RunDir) -> Iterator[None]:
    """Turns the two failures that a machine causes, a full disk and full memory, into errors that say so."""
    try:
        yield
    except GrpoError:
        raise
    except Exception as error:
        path, resume_with = run_dir.path, f"then continue with: grpo run --resume {shlex.quote(str(run_dir.path))}"
        if not is_run(path):
            raise RunError(
                f"the run directory {path} was removed, or cannot be reached any more: {error}. What it held is lost "
                "unless it comes back; start the run again."
            ) from error
        free = shutil.disk_usage(path).free
        number = getattr(error, "errno", None)
        if number in DISK_ERRORS or any(text in str(error) for text in DISK_MESSAGES) or free < DISK_FLOOR:
            raise RunError(
                f"cannot write {path}: {error} ({free / 2**20:.0f} MiB free). Free some space, {resume_with}"
            ) from error
        file = getattr(error, "filename", None)
        inside = number == errno.EIO if file is None else str(file).startswith(str(path))  # fsync names no file
        if (inside and number in FOLDER_ERRORS) or not os.access(path, os.W_OK | os.X_OK):
            raise RunError(f"cannot write in {path}: {error}. Make it writable again, {resume_with}") from error
        if type(error).__name__ == "OutOfMemoryError":
            raise RunError(
                f"the GPU's memory is full: {str(error).splitlines()[0]} Lower train.micro_batch_size or "
                f"rollout.batch_size, or set --checkpointing full or offload, {resume_with}"
            ) from error
        raise


def asked_for(error: BaseException) -> bool:
    """Returns whether a run ends because a user asked this process or another one to stop."""
    return isinstance(error, KeyboardInterrupt) or (isinstance(error, PeerEnded) and error.end.code == INTERRUPTED)


def observe(host: Host, event: RunStarted | RunEnded) -> None:
    if is_first():
        host.observe(event)
