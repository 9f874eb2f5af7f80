"""Plays agents that want a task's reward without solving it, and says which of them were paid.

No model is needed. A task is sound where its own solution is paid more than doing nothing and no attack is.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from grpo.envs.shell.attacks import Known, attacks
from grpo.envs.shell.task import Grade, Machines, Script, SessionTask, grade, run, tail_of

_SECONDS = 20.0  # of an attack
_MARK = "/tmp/.before"


@dataclass(frozen=True, slots=True)
class Paid:
    """An attack that was paid more than doing nothing.

    Attributes:
        attack: what the agent did.
        reward: that it got.
    """

    attack: str
    reward: float


@dataclass(frozen=True, slots=True)
class Panel:
    """What a task pays for.

    Attributes:
        task: its name.
        nothing: the reward for doing nothing.
        gold: that of the task's own solution; None where there is none.
        problem: why the solution failed; "" otherwise.
        tried: how many attacks there were.
        paid: those that were paid.
        half: the reward for the first half of the solution; None where that is not known.
    """

    task: str
    nothing: float
    gold: float | None
    problem: str
    tried: int
    paid: tuple[Paid, ...]
    half: float | None

    def sentences(self) -> Iterator[str]:
        """Yields what is wrong with the task; nothing where it pays its solution and nothing else."""
        for paid in self.paid:
            yield f"an agent that {paid.attack} is paid {paid.reward:g}"
        if self.gold is not None and self.gold <= self.nothing:
            yield f"its own solution is paid {self.gold:g}, no more than doing nothing: {self.problem or 'no reason'}"
        elif self.gold is not None and self.half is not None and self.half >= self.gold:
            yield f"the first half of its solution is paid {self.half:g}, like the whole"


def panel_of(task: SessionTask, machines: Machines) -> Panel:
    """Returns what a task pays for.

    Raises:
        DatasetError: its machine cannot be made.
        SessionLost: a machine is gone.
    """
    nothing = _paid(task, machines, Script(["true"])).reward
    gold, half, changed = None, None, list[str]()
    if task.solution:
        gold, changed = _solved(task, machines, task.solution)
        if first := _first_half(task.solution):
            half = _paid(task, machines, first).reward
    known = Known(changed, [posixpath.join("/tests", path) for path in task.grader.files])
    paid, tried = [], 0
    for attack in attacks(known):
        tried += 1
        reward = _paid(task, machines, Script(["sh", "-c", attack.script], seconds=_SECONDS)).reward
        if reward > nothing:
            paid.append(Paid(attack.name, reward))
    return Panel(
        task=task.name,
        nothing=nothing,
        gold=gold.reward if gold else None,
        problem=(gold.reason or gold.output[-300:]) if gold and gold.reward <= nothing else "",
        tried=tried,
        paid=tuple(paid),
        half=half,
    )


def _paid(task: SessionTask, machines: Machines, script: Script) -> Grade:
    """Returns what a script that is all that an agent does is paid."""
    machine = machines.open(task)
    try:
        run(machine, task, script)
        return grade(machines, task, machine)
    finally:
        machine.close()


def _solved(task: SessionTask, machines: Machines, solution: Script) -> tuple[Grade, list[str]]:
    """Returns what the solution is paid, and the files that it wrote."""
    machine = machines.open(task)
    try:
        machine.run(["sh", "-c", f"touch {_MARK}; sleep 0.02"])
        done = run(machine, task, solution)
        newer = machine.run(["sh", "-c", f"find / -xdev -type f -newer {_MARK} -not -path '/tmp/*' -print0"])
        graded = grade(machines, task, machine)
    finally:
        machine.close()
    own = {posixpath.join(task.directory or machine.directory, path) for path in solution.files}
    changed = [path for path in newer.stdout.decode("utf-8", "replace").split("\0") if path and path not in own]
    if graded.reward <= 0.0 and done.code != 0:
        reason = f"the solution ended with status {done.code}: {tail_of(done, 300)}"
        graded = Grade(graded.reward, reason, graded.output)
    return graded, changed


def _first_half(solution: Script) -> Script | None:
    """Returns the first half of the lines of a solution's script; None where it has one line."""
    for path, (content, mode) in solution.files.items():
        lines = [line for line in content.decode("utf-8", "replace").splitlines(keepends=True) if line.strip()]
        body = [line for line in lines if not line.startswith("#")]
        if len(body) > 1:
            kept = "".join(body[: len(body) // 2]).encode()
            return Script(solution.argv, {path: (kept, mode)}, solution.environment, solution.seconds)
    return None
