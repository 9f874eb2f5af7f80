"""Defines environments whose episode is a task in a session: a tool runs commands there, a grader judges the end."""

from __future__ import annotations

import base64
import posixpath
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
from gymnasium.error import ResetNeeded

from grpo.envs.shell.panel import panel_of
from grpo.envs.shell.rows import LONGEST_ARGUMENT
from grpo.envs.shell.task import Machines, Script, SessionTask, assignments, grade, open_machine
from grpo.envs.text.spaces import AnyText
from grpo.envs.text.text_env import shortened
from grpo.plugins.session import MACHINE_SECONDS, Exit, Session

_MERGED = 'exec "$0" -c "$1" 2>&1'  # of a shell: errors stand where they were printed


class SessionEnv(gymnasium.Env[str, str]):
    """Plays one task at a time.

    The policy works with the tool `bash`; a message without calls, or a spent budget, ends the episode. The machine is
    opened when it is first needed, and all its processes are dead before it is graded.

    Args:
        task_of: makes a row into its task; raises `DatasetError` for a row that cannot be used.
        rows: returns the rows to pick from when `reset` is given none.
        machines: opens and grades machines.
        system: the system message; "" sends none.
        seconds: that one command may take.
        shown: how many characters of a command's output the policy sees.
    """

    def __init__(
        self,
        task_of: Callable[[Mapping[str, Any]], SessionTask],
        rows: Callable[[], Sequence[Mapping[str, Any]]],
        machines: Machines,
        *,
        system: str,
        seconds: float,
        shown: int,
    ) -> None:
        self.observation_space = AnyText()
        self.action_space = AnyText()
        self._task_of, self._rows, self._machines = task_of, rows, machines
        self._system, self._seconds, self._shown = system, seconds, shown
        self._task: SessionTask | None = None
        self._machine: Session | None = None
        self._taken = 0.0

    @property
    def tools(self) -> list[Callable[..., str]]:
        """The functions that the policy may call."""
        return [self.bash]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts the episode of `options["row"]`, else of a random row. Raises DatasetError for a bad row."""
        super().reset(seed=seed)
        self.close()
        if options and "row" in options:
            row = options["row"]
        else:
            rows = self._rows()
            row = rows[int(self.np_random.integers(len(rows)))]
        self._task, self._taken = self._task_of(row), 0.0
        system = [{"role": "system", "content": self._system}] if self._system else []
        asked = {"role": "user", "content": self._task.instruction}
        info: dict[str, Any] = {"prompt": [*system, asked], "row": dict(row)}
        if self._task.solution:
            info["gold"] = [{"tool": "bash", "arguments": {"command": _as_command(self._task.solution)}}, "Done."]
        return self._task.instruction, info

    def bash(self, command: str) -> str:
        """Runs a command in the shell and returns what it printed. Files and processes stay, variables do not.

        Args:
            command: what to run.
        """
        if not isinstance(command, str):
            raise TypeError(f"command must be text, not {type(command).__name__}")
        task, machine = self._opened()
        if "\0" in command:
            raise ValueError("a command has no NUL characters")
        argv = ["sh", "-c", _MERGED, "bash", command]
        folder = task.directory or machine.directory
        done = machine.run(argv, timeout=self._seconds, directory=folder)
        self._taken += done.seconds
        return self._observation(done)

    @property
    def session(self) -> Session:
        """The machine of the episode; it is opened when it is asked for first. Raises DatasetError, SessionLost."""
        return self._opened()[1]

    @property
    def working_directory(self) -> str:
        """Where programs of the episode begin; "": in the session's own directory."""
        return self._task.directory if self._task else ""

    def open_session(self, **fields: Any) -> Session:
        """Opens the machine of the episode, with further fields of `SessionJob`. Raises DatasetError, SessionLost."""
        assert self._task is not None, "reset comes first"
        self.close()
        self._machine = open_machine(self._machines.pool, self._task, **fields)
        return self._machine

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Ends the episode and grades it."""
        return self._end(truncated=False)

    def cut(self) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Grades an episode that a budget ended."""
        return self._end(truncated=True)

    def weaknesses(self, row: Mapping[str, Any]) -> Sequence[str]:
        """Plays a row's solution and agents that do not solve the task; returns what else than the solution is paid."""
        return list(panel_of(self._task_of(row), self._machines).sentences())

    def close(self) -> None:
        """Ends the machine."""
        if self._machine is not None:
            self._machine.close()
        self._machine = None

    def _opened(self) -> tuple[SessionTask, Session]:
        if self._task is None:
            raise ResetNeeded("no task is open: call reset() before each episode.")
        if self._machine is None:
            self._machine = self._machines.open(self._task)
        return self._task, self._machine

    def _end(self, *, truncated: bool) -> tuple[str, float, bool, bool, dict[str, Any]]:
        task, machine = self._opened()
        began = time.monotonic()
        try:
            graded = grade(self._machines, task, machine)
        finally:
            self.close()
            self._task = None
        info: dict[str, Any] = {"success": graded.reward >= 1.0, "graded": graded.output}
        if graded.reason:
            info["reason"] = graded.reason
        info[MACHINE_SECONDS] = self._taken + time.monotonic() - began
        return "", graded.reward, not truncated, truncated, info

    def _observation(self, done: Exit) -> str:
        printed = shortened(done.stdout.decode("utf-8", "replace").strip("\n"), self._shown)
        if done.timed_out:
            return f"{printed}\nthe command was stopped after {self._seconds:g} s".strip()
        if done.out_of_memory:
            return f"{printed}\nthe command was stopped: the machine's memory is used up".strip()
        if done.code:
            return f"{printed}\nexit status {done.code}".strip()
        return printed or (done.problem or "(nothing was printed)")


def _as_command(solution: Script) -> str:
    """Returns a command that runs a solution: the script itself, or what writes its files first."""
    if (script := _only_script(solution)) is not None:
        return shlex.join(["env", *assignments(solution.environment), solution.argv[0], "-c", script])
    lines = [
        f"mkdir -p {shlex.quote(posixpath.dirname(path))} && echo {base64.b64encode(content).decode()} | base64 -d > "
        f"{shlex.quote(path)} && chmod {mode:o} {shlex.quote(path)}"
        for path, (content, mode) in solution.files.items()
    ]
    return "\n".join([*lines, shlex.join(["env", *assignments(solution.environment), *solution.argv])])


def _only_script(solution: Script) -> str | None:
    """Returns the text of a solution that is one script for a shell and does not look at its own file; else None."""
    if len(solution.files) != 1 or solution.argv not in [(shell, *solution.files) for shell in ("sh", "bash")]:
        return None
    ((path, (content, _)),) = solution.files.items()
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    by_itself = not any(sign in text for sign in ("\0", "$0", "${0", posixpath.dirname(path), "BASH_SOURCE"))
    return text if by_itself and len(content) <= LONGEST_ARGUMENT else None
