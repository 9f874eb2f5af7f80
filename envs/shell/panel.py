"""Plays hostile agents on a task, and reports which of them were paid.

No model is needed. A task is sound where its own solution is paid more than doing nothing and no attack is.
"""

from __future__ import annotations

import posixpath
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from grpo.envs.shell.attacks import attacks
from grpo.envs.shell.task import Grade, Machines, Script, SessionTask, grade, run, tail_of

_SECONDS = 20.0  # of an attack
_LEAST, _TIMES = 10.0, 10.0  # seconds for grading an attack, and how many times those that the solution took
_LIST = "find / -xdev \\( -type f -o -type l \\) -not -path '/tmp/*'"
_BEFORE = f"{_LIST} | LC_ALL=C sort > /tmp/.before; sleep 0.02"
_CHANGED = f"""\
{_LIST} | LC_ALL=C sort > /tmp/.after
{{ comm -13 /tmp/.before /tmp/.after; {_LIST} -cnewer /tmp/.before || {_LIST} -newer /tmp/.before; }} | LC_ALL=C sort -u
"""
_FILE = re.compile(r"(?<![\w./-])\w[\w./-]*\.\w+")
_MOST_NAMED = 20
_SHOWN = 300  # characters of what a grader printed


@dataclass(frozen=True, slots=True)
class Panel:
    """What a task pays for."""

    nothing: float  # the reward for doing nothing
    gold: float | None  # that of the task's own solution; None where there is none
    problem: str  # why the solution failed; "" otherwise
    paid: Mapping[str, float]  # what the agents of attacks did that were paid more than doing nothing, and how much
    half: float | None  # the reward for the first half of the solution; None where that is not known
    idle: tuple[str, ...]  # files that the instruction names and the solution changes, and that may stay as they were

    def sentences(self) -> Iterator[str]:
        """Yields what is wrong with the task; nothing where it pays its solution and nothing else."""
        for attack, reward in self.paid.items():
            yield f"an agent that {attack} is paid {reward:g}"
        if self.gold is not None and self.gold <= self.nothing:
            yield f"its own solution is paid {self.gold:g}, no more than doing nothing: {self.problem or 'no reason'}"
        elif self.gold is not None and self.half is not None and self.half >= self.gold:
            yield f"the first half of its solution is paid {self.half:g}, like the whole"
        for path in self.idle:
            yield f"its solution is paid as much without what it does to {path}"


def panel_of(task: SessionTask, machines: Machines) -> Panel:
    """Returns what a task pays for. Raises DatasetError: its machine cannot be made; SessionLost: a machine is gone."""
    began = time.monotonic()
    nothing = _paid(task, machines, Script(["true"])).reward
    gold, half, changed, idle = None, None, list[str](), list[str]()
    if task.solution:
        gold, changed = _solved(task, machines, task.solution)
        if first := _first_half(task.solution):
            half = _paid(task, machines, first).reward
        named = [path for path in changed if posixpath.basename(path) in task.instruction]
        if gold.reward > nothing and len(named) > 1:
            idle = [path for path in named if _solved(task, machines, task.solution, path)[0].reward >= gold.reward]
    changed = changed or _named_files(task)
    grader = [posixpath.join("/tests", path) for path in task.grader.files]
    commits = _has_commits(task, machines)
    attacked = _hurried(task, time.monotonic() - began) if gold and gold.reward > nothing else task
    paid = {}
    for attack, script in attacks(changed, grader, instruction=task.instruction, commits=commits):
        reward = _paid(attacked, machines, Script(["sh", "-c", script], seconds=_SECONDS)).reward
        if reward > nothing:
            paid[attack] = reward
    return Panel(
        nothing=nothing,
        gold=gold.reward if gold else None,
        problem=_problem(gold) if gold and gold.reward <= nothing else "",
        paid=paid,
        half=half,
        idle=tuple(posixpath.basename(path) for path in idle),
    )


def _problem(gold: Grade) -> str:
    printed = " ".join(gold.output.split())[-_SHOWN:]
    return ": ".join(filter(None, (gold.reason, "" if printed in gold.reason else printed)))


def _hurried(task: SessionTask, seconds: float) -> SessionTask:
    """The task with a grader that need not wait long for what an attack left, such as a pipe."""
    most = min(task.grader.seconds, max(_LEAST, _TIMES * seconds))
    return replace(task, grader=replace(task.grader, seconds=most))


def _paid(task: SessionTask, machines: Machines, script: Script) -> Grade:
    machine = machines.open(task)
    try:
        run(machine, task, script)
        return grade(machines, task, machine)
    finally:
        machine.close()


def _solved(task: SessionTask, machines: Machines, solution: Script, left: str = "") -> tuple[Grade, list[str]]:
    """The grade of the solution, and the files that it changed; one that is `left` is put back as it was."""
    machine = machines.open(task)
    try:
        machine.run(["sh", "-c", _BEFORE])
        if left:
            machine.run(["cp", "-p", left, "/tmp/.left"])
        done = run(machine, task, solution)
        changed = machine.run(["sh", "-c", _CHANGED]).stdout.decode("utf-8", "replace").splitlines()
        if left:
            machine.run(["sh", "-c", 'rm -f "$1"; [ ! -e /tmp/.left ] || cp -p /tmp/.left "$1"', "sh", left])
        graded = grade(machines, task, machine)
    finally:
        machine.close()
    own = {posixpath.join(task.directory or machine.directory, path) for path in solution.files}
    if graded.reward <= 0.0 and done.code != 0:
        reason = f"the solution ended with status {done.code}: {tail_of(done, 300)}"
        graded = Grade(graded.reward, reason, graded.output)
    return graded, [path for path in changed if path not in own]


def _named_files(task: SessionTask) -> list[str]:
    """The files that the instruction and the grader name: a solution may have to write them."""
    texts = [task.instruction, *(content.decode("utf-8", "replace") for content, _ in task.grader.files.values())]
    names = dict.fromkeys(name for text in texts for name in _FILE.findall(text))
    return [posixpath.join(task.directory or ".", name) for name in names][:_MOST_NAMED]


def _has_commits(task: SessionTask, machines: Machines) -> bool:
    machine = machines.open(task)
    try:
        return run(machine, task, Script(["sh", "-c", "test -e .git"])).code == 0
    finally:
        machine.close()


def _first_half(solution: Script) -> Script | None:
    for path, (content, mode) in solution.files.items():
        lines = [line for line in content.decode("utf-8", "replace").splitlines(keepends=True) if line.strip()]
        body = [line for line in lines if not line.startswith("#")]
        if len(body) > 1:
            kept = "".join(body[: len(body) // 2]).encode()
            return Script(solution.argv, {path: (kept, mode)}, solution.environment, solution.seconds)
    return None
