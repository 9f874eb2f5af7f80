"""Finds the subcommand of `grpo`, loads only what it needs, and turns deliberate errors into one line.

Exit codes: 0 done, 1 a run or a plugin failed, 2 something the user wrote cannot be used, 130 interrupted.
"""

from __future__ import annotations

import atexit
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import click

import grpo
from grpo.core.cli.lazy import LazyGroup
from grpo.core.processes.memory import BEFORE_TORCH
from grpo.core.processes.rank import alone, count, rank
from grpo.core.text.printable import printable
from grpo.core.text.quiet import silence_unloaded
from grpo.core.text.streams import LastingStream, open_standard_streams
from grpo.plugins.errors import GrpoError, RunError, UsageError, did_you_mean

INTERRUPTED = 130
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)  # what stdout may come to
GRACE = 5.0  # seconds that threads of plugins have to end in when all else has

# The groups of `grpo --help`; name: (module and attribute, the line there). A module is imported when it is used.
GROUPS = {
    "Train and measure": {
        "run": ("grpo.core.cli.run:run", "Train a policy on an environment."),
        "plan": ("grpo.core.cli.plan:plan", "Show where a run's memory goes and which settings fit."),
        "launch": ("grpo.core.cli.launch:launch", "Write a SLURM batch script for a run."),
        "serve-rollouts": ("grpo.core.cli.serve:serve_rollouts", "Start vLLM as a rollout server."),
        "serve-mcp": ("grpo.core.cli.serve_mcp:serve_mcp", "Offer the tasks of an environment as an MCP server."),
        "eval": ("grpo.core.cli.eval:evaluate", "Measure a model on an environment, without training."),
    },
    "Rewards and plugins": {
        "plugins": (
            "grpo.core.cli.plugins:plugins",
            "List the installed plugins; show, check, validate or create one.",
        ),
        "score": ("grpo.core.cli.score:score", "Score recorded completions with rewards."),
        "verify": ("grpo.core.cli.score:verify", "Judge recorded completions with a verifier."),
        "sandbox": ("grpo.core.cli.sandbox:sandbox", "Run a program in a sandbox; check a sandbox."),
        "shrink": ("grpo.core.cli.shrink:shrink", "Find the smallest text that keeps a suspicious score."),
        "diff": ("grpo.core.cli.diff:diff", "Show how a change of rewards changes advantages."),
    },
    "Machine": {
        "doctor": ("grpo.core.cli.doctor:doctor", "Diagnose this machine: what would stop a run?"),
    },
    "Runs": {
        "runs": ("grpo.core.cli.runs:runs", "List the runs of this folder."),
        "show": ("grpo.core.cli.runs:show", "Print rollouts of a run."),
        "report": ("grpo.core.cli.report:report", "Write runs as one HTML page."),
        "watch": ("grpo.core.cli.watch:watch", "Follow runs in a browser."),
        "generate": ("grpo.core.cli.model:generate", "Try the model of a run on a prompt."),
        "export": ("grpo.core.cli.model:export", "Write the model of a run for transformers and PEFT."),
        "push": ("grpo.core.cli.push:push", "Publish model, card and report of a run on the hub."),
    },
}
COMMANDS = {name: module for commands in GROUPS.values() for name, (module, _) in commands.items()}
MEANT = {"train": "grpo run", "resume": "grpo run --resume"}  # commands of other trainers
WIDEST = max(map(len, COMMANDS))


class _Commands(LazyGroup):
    def unknown(self, name: str, meant: str) -> str:
        other = next((ours for word, ours in MEANT.items() if did_you_mean(name, [word])), "")
        meant = meant or (other and f" Did you mean '{other}'?")
        return f"no command '{name}'.{meant} List the commands with: grpo --help"

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(WIDEST), line) for name, (_, line) in commands.items()])


@click.group(cls=_Commands, later=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(grpo.__version__, prog_name="grpo")
def cli() -> None:
    """Write rewards and environments for GRPO fine-tuning, and train with them.

    The main job: grpo run --env gsm8k --reward proximity
    """


def main() -> NoReturn:
    try:
        for name, value in BEFORE_TORCH.items():
            os.environ.setdefault(name, value)
        if not alone():
            os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # who did not come is told once, by us
        silence_unloaded()
        open_standard_streams()
        with _interrupts():
            code = cli(standalone_mode=False) if alone() else _one_of_several()
        sys.stdout.flush()
    except UsageError as error:
        fail(error, 2)
    except GrpoError as error:
        fail(error, 1)
    except click.ClickException as error:
        error.show()
        leave(2)
    except (KeyboardInterrupt, click.Abort):
        say("grpo: interrupted")
        leave(INTERRUPTED)
    except BrokenPipeError:
        leave(1)  # without a word, as click does: the reader has seen enough, for example `| head`
    except OSError as error:
        if not _of_an_output(error):
            raise
        fail(RunError(f"the output cannot be written: {error.strerror}. Send it elsewhere."), 1)
    leave(code if isinstance(code, int) else 0)


@contextmanager
def _interrupts() -> Iterator[None]:
    """Raises KeyboardInterrupt for whatever fails after Ctrl-C, as an interrupted import leaves half a module."""
    interrupted = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        signal.default_int_handler(number, frame)

    ours = threading.current_thread() is threading.main_thread()
    ours = ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, note)
    try:
        yield
    except Exception as error:
        if interrupted:
            raise KeyboardInterrupt from error
        raise
    finally:
        if ours and signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _one_of_several() -> object:
    """Runs the command in one of several processes, which end together and of which one tells why."""
    from grpo.core.processes.together import Silenced, together

    try:
        with together():
            return cli(standalone_mode=False)
    except Silenced as ended:
        leave(ended.code)
    except Exception as error:
        if isinstance(error, (GrpoError, click.ClickException, click.Abort, BrokenPipeError)) or _of_an_output(error):
            raise
        import traceback  # slow to import, and hardly ever needed

        traceback.print_exc()
        first = (str(error).splitlines() or [""])[0]
        fail(RunError(f"process {rank()} of {count()}: {type(error).__name__}: {first}"), 1)


def _of_an_output(error: Exception) -> bool:
    """Returns whether an error says that a standard stream cannot be written any more."""
    return isinstance(error, OSError) and error.filename is None and error.errno in UNWRITABLE


def fail(error: Exception, code: int) -> NoReturn:
    """Prints one error, which may quote a file or a plugin, and exits with its code."""
    say(f"grpo: {printable(str(error))}")
    leave(code)


def say(line: str) -> None:
    """Prints a line to stderr, if that can be written."""
    stream = LastingStream(sys.stderr)
    stream.write(f"{line}\n")
    stream.flush()


def leave(code: int) -> NoReturn:
    """Exits, whatever stream cannot be written and whatever thread of a plugin never ends.

    One of several processes does not take its memory apart first: the others wait for seconds meanwhile.
    """
    LastingStream(sys.stdout).flush()
    LastingStream(sys.stderr).flush()
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    kept = [thread for thread in others if not thread.daemon]
    deadline = time.monotonic() + GRACE
    for thread in kept:
        thread.join(max(0.0, deadline - time.monotonic()))
    left = [thread.name for thread in kept if thread.is_alive()]
    if not left and alone():
        sys.exit(code)
    if left:
        say(f"warning: a thread of a plugin still runs ({left[0]}); it is left behind.")
    atexit._run_exitfuncs()
    os._exit(code)
