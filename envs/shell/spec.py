"""Provides `shell:FILE` and `harbor:FOLDER`: tasks that are solved with a shell, in a session of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from grpo.envs.members import member_spec
from grpo.plugins.errors import OptionError, PluginNotFound
from grpo.plugins.factory_decorators import env
from grpo.plugins.specs import EnvSpec

if TYPE_CHECKING:
    import gymnasium

    from grpo.envs.shell.task import Machines, SessionTask
    from grpo.plugins.session import SessionPool

Grading = Literal["task", "fresh", "in_place"]
MOST_TURNS = 50
_MOST = 1_000_000
_of_pools: WeakKeyDictionary[SessionPool, Machines] = WeakKeyDictionary()
SYSTEM = "Do the task in the working directory, with a shell. When it is done, say so."


def shell(
    member: str,
    *,
    session: str = "local",
    image: str = "",
    network: bool = False,
    system: str = SYSTEM,
    seconds: float = 10.0,
    grade_seconds: float = 30.0,
    memory: int = 1024,
    disk: int = 256,
    processes: int = 256,
    shown: int = 4000,
) -> gymnasium.Env[str, str]:
    """Tasks in rows, solved with a shell: `shell:tasks.jsonl`.

    A row has `instruction`, `grader` (a script for sh: exit status zero pays 1; one that names the file
    /logs/verifier/reward.txt writes a number there), and where there are some `files` (path to text), `solution` (a
    script) and `name`.

    Args:
        member: a file of rows, or a folder with train and test files.
        session: the SPEC of the session.
        image: what a machine begins with, where the session has images.
        network: let commands reach the network.
        system: the system message; "" sends none.
        seconds: that one command of the policy may take.
        grade_seconds: that a grader may take.
        memory: in MiB, of all programs of a machine together.
        disk: in MiB, of its files.
        processes: that live at once in a machine.
        shown: how many characters of what a command printed the policy sees.

    Returns:
        An environment of several turns with the tool `bash`.

    Raises:
        PluginNotFound: there is no such file.
        OptionError: an option has a value that cannot be used.
        SandboxUnavailable: this machine cannot run the session.
    """
    from grpo.envs.shell.env import SessionEnv
    from grpo.envs.shell.rows import read_task_row
    from grpo.envs.shell.task import LIFE
    from grpo.plugins.session import SessionLimits

    _refuse_unusable(
        seconds=seconds, grade_seconds=grade_seconds, memory=memory, disk=disk, processes=processes, shown=shown
    )
    limits = SessionLimits(memory_bytes=memory * 2**20, disk_bytes=disk * 2**20, processes=processes, seconds=LIFE)

    def task_of(row: Mapping[str, Any]) -> SessionTask:
        task = read_task_row(row, "the row given to reset", grade_seconds)
        return replace(task, image=image, network=network, limits=limits, hidden=(_whole(member),))

    read_rows = partial(shell_rows, member, "train")
    return SessionEnv(task_of, read_rows, _machines(session), system=system, seconds=seconds, shown=shown)


def shell_rows(member: str, split: str, **_: Any) -> Sequence[Mapping[str, Any]]:
    """Returns the rows of a split, each of which was checked. Raises DatasetError."""
    from grpo.envs.datasets.folders import read_split
    from grpo.envs.datasets.stored import checked_rows
    from grpo.envs.shell.rows import read_task_row

    def read(row: object, where: str) -> dict[str, Any]:
        read_task_row(row, where, 1.0)
        return dict(row)  # type: ignore[call-overload, no-any-return]

    return checked_rows(read_split(Path(member).expanduser(), split), read, lambda row: str(row["instruction"]))


def shell_longest(member: str, *, grade_seconds: float = 30.0, **_: Any) -> float:
    """Returns the seconds that grading an episode may take."""
    from grpo.envs.shell.task import AROUND

    return grade_seconds + AROUND


def harbor(
    member: str,
    *,
    session: str = "local",
    grading: Grading = "task",
    system: str = SYSTEM,
    seconds: float = 30.0,
    shown: int = 4000,
) -> gymnasium.Env[str, str]:
    """Tasks in folders of Harbor's form (Terminal-Bench), solved with a shell: `harbor:./tasks`.

    A task is a folder with task.toml, instruction.md, environment/Dockerfile and tests/test.sh, and where there is one
    solution/solve.sh.

    Args:
        member: a folder of such folders; where it has the folders train and test, these are the splits.
        session: the SPEC of the session; `docker` builds Dockerfiles, `local` follows those that begin with a plain
            system.
        grading: "fresh": tests judge the working directory in a new machine; "in_place": the machine in which the task
            was solved; "task": as its task.toml says (`verifier.environment_mode`).
        system: the system message; "" sends none.
        seconds: that one command of the policy may take.
        shown: how many characters of what a command printed the policy sees.

    Returns:
        An environment of several turns with the tool `bash`.

    Raises:
        PluginNotFound: there is no such folder.
        OptionError: an option has a value that cannot be used.
        SandboxUnavailable: this machine cannot run the session.
    """
    from grpo.envs.shell.env import SessionEnv
    from grpo.envs.shell.harbor import read_harbor_task

    _refuse_unusable(seconds=seconds, shown=shown)

    def task_of(row: Mapping[str, Any]) -> SessionTask:
        task = read_harbor_task(Path(row["folder"]), session, grading, builds=_builds(session))
        return replace(task, hidden=(_whole(member),))

    read_rows = partial(harbor_rows, member, "train")
    return SessionEnv(task_of, read_rows, _machines(session), system=system, seconds=seconds, shown=shown)


def harbor_rows(
    member: str, split: str, *, session: str = "local", grading: Grading = "task", **_: Any
) -> Sequence[Mapping[str, Any]]:
    """Returns a row for each task of a split, each of which was read. Raises DatasetError."""
    from grpo.envs.shell.harbor import folders_of, read_harbor_task

    rows = []
    for folder in folders_of(Path(member).expanduser(), split):
        task = read_harbor_task(folder, session, grading, builds=_builds(session))
        rows.append({"task": task.name, "instruction": task.instruction, "folder": str(folder.resolve())})
    return rows


def harbor_longest(member: str, **_: Any) -> float:
    """Returns the seconds that grading an episode may take, by the task whose tests may take longest."""
    from grpo.envs.shell.harbor import longest_tests
    from grpo.envs.shell.task import AROUND

    return longest_tests(Path(member).expanduser()) + AROUND


def resolve_shell(member: str) -> EnvSpec:
    """Returns the spec of the tasks of a file or folder. Raises PluginNotFound."""
    return _of_member(SHELL, member, shell, shell_rows, shell_longest)


def shell_tasks(folder: Path, *, name: str, version: int, doc: str = "") -> EnvSpec:
    """Returns an environment of the tasks of a package, with the options of `shell`.

    Args:
        folder: with the files train and test of tasks, or a file of them.
        name: of the environment.
        version: raise it when a task changes.
        doc: what the tasks are, in a sentence.

    Raises:
        PluginNotFound: there is no such folder.

    Example:
        >>> from pathlib import Path
        >>> from grpo import shell_tasks
        >>> chores = shell_tasks(Path("."), name="chores", version=1)
        >>> chores.name, chores.verifier
        ('chores', 'environment')
    """
    return replace(resolve_shell(str(folder)), name=name, version=version, doc=doc)


def resolve_harbor(member: str) -> EnvSpec:
    """Returns the spec of the tasks of a folder. Raises PluginNotFound."""
    return _of_member(HARBOR, member, harbor, harbor_rows, harbor_longest)


def _of_member(
    spec: EnvSpec, member: str, make: Callable[..., Any], rows: Callable[..., Any], longest: Callable[..., float]
) -> EnvSpec:
    if not Path(member).expanduser().exists():
        raise PluginNotFound(f"{spec.name}:{member}: there is no '{member}' (looked in {Path().absolute()}).")
    return member_spec(spec, member, make, dataset=partial(rows, member), longest_call=partial(longest, member))


def _whole(member: str) -> str:
    return str(Path(member).expanduser().absolute())


def _refuse_unusable(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value <= _MOST:
            raise OptionError(f"{name}={value:g} must be above 0 and at most {_MOST:,}.")


def _builds(session: str) -> bool:
    """Whether a session builds images of folders with a Dockerfile. Raises SandboxUnavailable."""
    from grpo.plugins.pools import sessions_of

    return session.partition(":")[0] != "local" and bool(sessions_of(session).capabilities().get("build"))


def _machines(session: str) -> Machines:
    """The machines of this process's pool, which keep what the commands of tasks made."""
    from grpo.envs.shell.task import Machines
    from grpo.plugins.pools import sessions_of

    pool = sessions_of(session)
    if pool not in _of_pools:
        _of_pools[pool] = Machines(pool)
    return _of_pools[pool]


SHELL = env(
    name="shell",
    version=1,
    rewards=("environment",),
    verifier="environment",
    max_turns=MOST_TURNS,
    scores_itself=True,
    resolve=resolve_shell,
)(shell)
HARBOR = env(
    name="harbor",
    version=1,
    rewards=("environment",),
    verifier="environment",
    max_turns=MOST_TURNS,
    scores_itself=True,
    resolve=resolve_harbor,
)(harbor)
