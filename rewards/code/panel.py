"""Tries generic cheats on a task, to find tests that accept a program which solves nothing.

No judge can defend weak tests, so a task that pays a cheat is left out of training. The cheats are the same for every
task and read only the names that a solution must define. They are judged side by side, each up to its first failure,
once for each task and process.

A panel takes the processor time of about 15 honest programs of the task where they print (40 ms) or functions are
called with plain data (0.15 s), and of 20 where tests and program share a process (0.5 s).
"""

from __future__ import annotations

import asyncio
from typing import Any

from grpo.plugins.pools import pool_of
from grpo.rewards.code.allowance import Allowance
from grpo.rewards.code.judge import judge
from grpo.rewards.code.judgements import Judgements
from grpo.rewards.code.results import CodeResult, UnitResult
from grpo.rewards.code.task import Task

_SECONDS = 2.0
_FENCED = "```python\n{}\n```"
_PRINTED = {
    "prints nothing": "pass",
    "prints its input": "import sys\nsys.stdout.write(sys.stdin.read())",
    "prints the first word of its input": "import sys\nprint(*sys.stdin.read().split()[:1])",
    **{f"prints {text}": f"print({text!r})" for text in ("0", "1", "-1", "YES", "NO", "Yes", "No")},
}
_RETURNED = {
    **{
        f"returns {text}": f"return {text}"
        for text in ("None", "True", "False", "0", "1", "-1", "0.0", "''", "[]", "()", "{}")
    },
    "returns its first argument": "return [*args, *named.values()][0]",
    "raises ValueError": "raise ValueError",
    "raises TypeError": "raise TypeError",
}
# What tests of several functions could pay, where one undoes what another did: an honest store looks the same to them.
_KEPT = """\
kept = []
def keep(named_for, first, *others):
    known = [given for name, given in kept if name == first and type(name) is type(first)]
    kept.append((named_for(len(kept)), first))
    return known[0] if known else kept[-1][0]
"""
_KEEPING = {
    f"keeps what it is given and returns {what}": (_KEPT, "object", f"return keep({kind}, *args, *named.values())")
    for what, kind in (("its number", "int"), ("a name for it", "str"))
}
_ANYTHING = """\
def answer(self, *args, **named):
    return self
class Anything:
    __init__ = __setattr__ = __setitem__ = __delitem__ = lambda self, *args, **named: None
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __contains__ = lambda *args: True
    __ne__ = lambda *args: False
    __hash__ = __len__ = __index__ = __int__ = lambda self: 1
    __float__ = lambda self: 1.0
    __str__ = __repr__ = lambda self: ''
    __iter__ = lambda self: iter(())
    __exit__ = lambda *args: True
    __call__ = __getattr__ = __getitem__ = __enter__ = __abs__ = __neg__ = __round__ = answer
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __mod__ = answer
"""
_ALWAYS_EQUAL = (
    "class Equal({0}):\n    __eq__ = lambda *args: True\n    __ne__ = lambda *args: False\n    __hash__ = None\n"
)
_CLASS = """\
class {name}Kind(type({base})):
    __getattr__ = lambda self, name: body
class {name}({base}, metaclass={name}Kind):
    __init__ = lambda self, *args, **named: None
    __getattr__ = getattr({base}, "__getattr__", lambda self, name: body)
"""
_PATCHED = """\
import builtins, sys, unittest
for name in ('all', 'any', 'isinstance', 'issubclass', 'callable', 'hasattr', 'abs', 'len', 'sum', 'sorted'):
    setattr(builtins, name, lambda *args, **named: True)
"""
_PATCHED_RUNNER = """\
import unittest
for name in dir(unittest.TestCase):
    if name.startswith('assert'):
        setattr(unittest.TestCase, name, lambda *args, **named: None)
try:
    import pytest
    pytest.raises = pytest.approx = lambda *args, **named: args[0]
except ImportError:
    pass
"""
# What only tests in one process with the solution could pay: what comes first, the base of classes, what a call does.
_TOGETHER = {
    "returns an object that does everything": (_ANYTHING, "Anything", "return Anything()"),
    **{
        f"returns a {kind} that equals everything": (_ALWAYS_EQUAL.format(kind), "Equal", "return Equal()")
        for kind in ("object", "int", "str", "list")
    },
    "exits when it is loaded": ("import sys\nsys.exit(0)", "object", "return None"),
    "ends its process when it is loaded": ("import os\nos._exit(0)", "object", "return None"),
    "exits when it is called": ("import sys", "object", "sys.exit(0)"),
    "ends its process when it is called": ("import os", "object", "os._exit(0)"),
    "patches built-in functions": (_PATCHED, "object", "return None"),
    "patches the tests' runner": (_PATCHED_RUNNER, "object", "return None"),
}

PANELS = Judgements(most=65_536)
"""What the panel of each task found in this process: one accepted test for each cheat that is paid."""


def cheats_for(task: Task) -> dict[str, str]:
    """Returns the cheats for a task by what they do; none computes, as `sorted` may be right. Raises UnusableTests."""
    if not task.sources:
        return {what: _FENCED.format(program) for what, program in _PRINTED.items()}
    plan = task.plan()
    played = {what: ("", "object", body) for what, body in _RETURNED.items()}
    if len(plan.names) > 1:
        played |= _KEEPING
    if plan.kind == "objects":
        played |= _TOGETHER
    classes = {name for name in plan.names if name[:1].isupper()} if plan.kind == "objects" else set()
    return {what: _FENCED.format(_program(*cheat, plan.names, classes)) for what, cheat in played.items()}


def _program(before: str, base: str, body: str, names: tuple[str, ...], classes: set[str]) -> str:
    parts = [before, f"def body(*args, **named):\n    {body}\n"]
    for name in names:
        if name in classes:
            raised = "Exception" if name.endswith(("Error", "Exception")) else base
            parts.append(_CLASS.format(name=name, base=raised))
        else:
            parts.append(f"def {name}(*args, **named):\n    return body(*args, **named)\n")
    return "\n".join(parts)


async def paid_cheats(sandbox: str, task: Task, *, memory: int, **options: Any) -> tuple[str, ...]:
    """Returns what a task's paid cheats do; `options`: those of `judge`. Raises TransientError, UnusableTests."""
    cheats = cheats_for(task)
    allowance = Allowance(_SECONDS, memory, stop=True)

    async def paid(completion: str) -> bool:
        _, result = await judge(pool_of(sandbox), completion, task, allowance=allowance, **options)
        return result.passed == result.count

    async def every() -> CodeResult:
        each = zip(cheats, await asyncio.gather(*map(paid, cheats.values())), strict=True)
        return CodeResult(tuple(UnitResult("accepted", what) for what, is_paid in each if is_paid), len(cheats))

    result = await PANELS.once((sandbox, task, options), every, stop=True)
    return tuple(test.reason for test in result.tests)
