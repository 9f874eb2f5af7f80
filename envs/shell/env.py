"""The environment `shell`: one task, a tool `bash`, and a grader when the policy says that it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium

from grpo.envs.shell.grading import grade
from grpo.envs.shell.tasks import Task, read_task
from grpo.envs.text.spaces import AnyText
from grpo.plugins.session import Exit, Session, SessionJob
from grpo.plugins.session_pools import sessions_of

Step = tuple[str, float, bool, bool, dict[str, Any]]
_CUT = "\n[...]\n"
_MERGED = 'exec "$0" -c "$1" 2>&1'  # of a shell: stderr goes where stdout goes, in order
_SYSTEM = "Do the task in the working directory. When it is done, say so in a message without a call."


@dataclass(frozen=True, slots=True)
class ShellLimits:
    """How far an episode may go.

    Attributes:
        session: the SPEC of the sessions.
        job: what each is opened with, without the files of its task.
        seconds: for one command.
        grade_seconds: for the grader.
        shown: characters of a command's output that the policy sees.
    """

    session: str
    job: SessionJob
    seconds: float
    grade_seconds: float
    shown: int


class ShellEnv(gymnasium.Env[str, str]):
    """Tasks of a folder, each in a session of its own, which is opened with the first command.

    Args:
        limits: of an episode.
        rows: returns the rows to pick from when `reset` is given none.
        system: the system message; "" for none.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012
    observation_space = AnyText()
    action_space = AnyText()

    def __init__(self, limits: ShellLimits, rows: Callable[[], Sequence[Mapping[str, Any]]], system: str) -> None:
        self._limits, self._rows, self._system = limits, rows, system
        self._pool = sessions_of(limits.session)
        self._task: Task | None = None
        self._session: Session | None = None

    @property
    def tools(self) -> list[Callable[..., str]]:
        """The functions that the policy may call."""
        return [self.bash]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts the episode of one task.

        Raises:
            DatasetError: the task cannot be read.
        """
        super().reset(seed=seed)
        self.close()
        row = (options or {}).get("row")
        if row is None:
            rows = self._rows()
            row = rows[int(self.np_random.integers(len(rows)))]
        task = self._task = read_task(Path(row["folder"]))
        system = [{"role": "system", "content": self._system}] if self._system else []
        info: dict[str, Any] = {"row": row, "prompt": [*system, {"role": "user", "content": task.instruction}]}
        if task.solution:
            info["gold"] = [{"tool": self.bash.__name__, "arguments": {"command": task.solution}}, "Done."]
        return task.instruction, info

    def bash(self, command: str) -> str:
        """Runs a command with bash in the working directory and returns what it prints. Its files stay.

        Args:
            command: the command, or several lines of them.
        """
        if not isinstance(command, str):
            raise TypeError(f"command must be text, not {type(command).__name__}")
        left = self.session.run(["sh", "-c", _MERGED, "bash", command], timeout=self._limits.seconds)
        return self._told(left)

    @property
    def session(self) -> Session:
        """The session of the episode; it is opened when it is asked for first."""
        return self.open_session() if self._session is None else self._session

    def open_session(self, **fields: Any) -> Session:
        """Opens the session of the episode, with fields of `SessionJob` that a program in it needs beside.

        Raises:
            SessionError, SessionLost: there is none.
        """
        assert self._task is not None, "reset comes first"
        self.close()
        self._session = self._pool.open(replace(self._limits.job, files=self._task.files, **fields))
        return self._session

    def step(self, action: str) -> Step:
        """Ends the episode: the policy says that it is done. Raises SessionLost."""
        return self._graded(truncated=False)

    def cut(self) -> Step:
        """Ends an episode whose budget is used up: what is there is graded. Raises SessionLost."""
        return self._graded(truncated=True)

    def close(self) -> None:
        """Closes the session."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _graded(self, *, truncated: bool) -> Step:
        assert self._task is not None, "reset comes first"
        session, self._session = self._session, None
        found = grade(self._pool, session, self._limits.job, self._task, self._limits.grade_seconds)
        info = {"success": found.score == 1.0, "scores": {"grade": found.score}, "grader": found.said}
        return "", found.score, not truncated, truncated, info

    def _told(self, left: Exit) -> str:
        if left.code is None:
            return f"(the command cannot be run: {left.problem})"
        text = left.stdout.decode(errors="replace").strip("\n")
        if len(text) > self._limits.shown:
            head = self._limits.shown // 2
            text = text[:head] + _CUT + text[head - self._limits.shown :]
        notes = []
        if left.timed_out:
            notes.append(f"the command took longer than {self._limits.seconds:g} s and was killed")
        elif left.out_of_memory:
            notes.append("the command was killed: it used too much memory")
        elif left.code:
            notes.append(f"exit status {left.code}" if left.code > 0 else f"ended by signal {-left.code}")
        if left.omitted:
            notes.append(f"{left.omitted} bytes of output left out")
        ends = f"({'; '.join(notes)})" if notes else ""
        return "\n".join(part for part in (text, ends) if part) or "(no output)"
