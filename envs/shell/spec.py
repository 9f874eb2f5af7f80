"""The environments `shell:FOLDER`, tasks in files. This module is light: an environment is imported when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo.plugins.errors import OptionError, PluginNotFound
from grpo.plugins.factory_decorators import env

if TYPE_CHECKING:
    import gymnasium

    from grpo.plugins.specs import EnvSpec

TURNS = 30
_LIFE = 86_400.0  # seconds of a session: waiting for the policy is no fault of an episode


def make(
    member: str,
    *,
    session: str = "local",
    image: str = "",
    network: bool = False,
    system: str | None = None,
    seconds: float = 30.0,
    grade_seconds: float = 60.0,
    memory: int = 1024,
    disk: int = 256,
    processes: int = 256,
    shown: int = 4000,
) -> gymnasium.Env[Any, Any]:
    """Tasks in files, done with bash in a session and judged by a grader: `shell:./tasks`.

    Args:
        member: a folder with a folder for each task, or with the folders train and test of such.
        session: the SPEC of the sessions: local, or one of a plugin.
        image: what a session begins with, where its kind has images.
        network: let commands reach the network.
        system: the system message; default: how to say that the task is done; "" sends none.
        seconds: for one command.
        grade_seconds: for the grader.
        memory: in MiB, of all programs of a session together.
        disk: in MiB, of its files.
        processes: that live at once in a session.
        shown: how many characters of what a command printed the policy sees.

    Returns:
        An environment with the tool `bash`.

    Raises:
        OptionError: an option has a value that cannot be used.
        UsageError: no session has that SPEC.
        SandboxUnavailable: this machine cannot run it.
    """
    from grpo.envs.shell.env import _SYSTEM, ShellEnv, ShellLimits
    from grpo.plugins.session import SessionJob, SessionLimits

    numbers = {"seconds": seconds, "grade_seconds": grade_seconds, "memory": memory, "disk": disk}
    for name, value in {**numbers, "processes": processes, "shown": shown}.items():
        if value <= 0:
            raise OptionError(f"{name}={value:g} must be above 0.")
    limits = SessionLimits(memory_bytes=memory * 2**20, disk_bytes=disk * 2**20, processes=processes, seconds=_LIFE)
    job = SessionJob(image=image, network=network, limits=limits)
    return ShellEnv(
        ShellLimits(session, job, seconds, grade_seconds, shown),
        partial(rows_of, member, "train"),
        _SYSTEM if system is None else system,
    )


def rows_of(member: str, split: str, **_: Any) -> Sequence[dict[str, Any]]:
    """Returns a row for each task of a split, which was read once to see that it can be used.

    Raises:
        DatasetError: there are none, or one cannot be used.
    """
    from grpo.envs.shell.tasks import folders_of, read_task
    from grpo.plugins.placed_rows import PlacedRows

    placed = []
    for folder in folders_of(Path(member).expanduser(), split):
        task = read_task(folder)
        row = {
            "task": task.name,
            "instruction": task.instruction,
            "folder": str(folder.resolve()),
            "sha256": task.digest,
        }
        placed.append((str(folder), row))
    return PlacedRows(placed)


def resolve(member: str) -> EnvSpec:
    """Returns the spec of the tasks of a folder. Raises PluginNotFound."""
    if not Path(member).expanduser().is_dir():
        raise PluginNotFound(f"shell:{member}: there is no folder '{member}' (looked in {Path.cwd()}).")
    return replace(
        SHELL, name=f"shell:{member}", factory=partial(make, member), dataset=partial(rows_of, member), resolve=None
    )


SHELL = env(
    name="shell",
    version=1,
    rewards=("environment",),
    verifier="environment",
    max_turns=TURNS,
    scores_itself=True,
    resolve=resolve,
)(make)
