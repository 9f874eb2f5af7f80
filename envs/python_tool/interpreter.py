"""Runs the programs of `python-tool` in a sandbox; sandbox trouble is retried and then raised, never an answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo.envs.text.single_turn import QuestionEnv
from grpo.envs.text.templates import Template
from grpo.envs.text.text_env import shortened
from grpo.plugins.errors import TransientError
from grpo.plugins.pools import run_jobs
from grpo.plugins.sandbox_job import Job, JobResult, Limits

_TRIES = 3
_CALCULATION = re.compile(r"<<([-+*/(). \d]+)=")
_ENDED = {
    "time_cpu": "it used more than {seconds:g} s of processor time",
    "time_wall": "it took too long",
    "memory": "it used more than {memory} MiB of memory",
    "output": "it printed too much",
    "policy": "it did something that is not allowed here",
}


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Runs programs."""

    sandbox: str  # the SPEC of the sandbox
    seconds: float  # of processor time for one program
    memory: int  # in bytes, for one program
    shown: int  # characters of what it printed

    def run(self, program: str) -> str:
        """Runs a program and returns the policy's observation; TransientError for trouble of the sandbox."""
        limits = Limits(cpu_seconds=self.seconds, wall_seconds=2 * self.seconds + 1, memory_bytes=self.memory)
        job = Job(program, limits=limits)
        for _ in range(_TRIES):
            (result,) = run_jobs([job], self.sandbox)
            if not result.trouble:
                return self._observation(result)
        raise TransientError(f"the sandbox '{self.sandbox}' failed {_TRIES} times: {result.outcome} {result.reason}")

    def _observation(self, result: JobResult) -> str:
        printed = self._short(result.stdout)
        if result.outcome == "exited" and result.exit_code == 0:
            return printed or "(the program printed nothing)"
        if result.outcome in _ENDED:
            why = _ENDED[result.outcome].format(seconds=self.seconds, memory=self.memory // 2**20)
            why = f"the program was stopped: {why}"
        elif result.outcome == "signalled":
            why = f"the program was ended by signal {result.signal}"
        else:
            why = self._short(result.stderr) or f"the program ended with status {result.exit_code}"
        return f"{printed}\n{why}".strip()

    def _short(self, written: bytes) -> str:
        return shortened(written.decode("utf-8", "replace").strip(), self.shown)


class InterpreterEnv(QuestionEnv):
    """Asks a question with one right answer; the tool `python` may be called `calls` times; an answer ends it."""

    def __init__(
        self,
        template: Template,
        rows: Callable[[], Sequence[Mapping[str, Any]]],
        interpreter: Interpreter,
        calls: int,
        *,
        question: str,
        answer: str,
    ) -> None:
        super().__init__(template, rows, question=question, answer=answer)
        self._interpreter = interpreter
        self._calls = calls
        self._used = 0

    @property
    def tools(self) -> list[Callable[..., str]]:
        """The functions that the policy may call."""
        return [self.python]

    def python(self, code: str) -> str:
        """Runs a Python program and returns what it prints. Nothing is kept between calls.

        Args:
            code: the program; it must print what you want to see.
        """
        if not isinstance(code, str):
            raise TypeError(f"code must be the text of a program, not {type(code).__name__}")
        if self._used >= self._calls:
            raise RuntimeError(f"all {self._calls} calls are used: answer now")
        self._used += 1
        return self._interpreter.run(code)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts the episode of one row; the demonstration calls the tool first. Raises DatasetError."""
        question, info = super().reset(seed=seed, options=options)
        self._used = 0
        calculations = _CALCULATION.findall(info["row"]["solution"])
        if calculations and "demonstration" in info:
            program = "\n".join(f"print({calculation})" for calculation in calculations)
            call = {"tool": self.python.__name__, "arguments": {"code": program}}
            info["demonstration"] = [call, info["demonstration"]]
        return question, info
