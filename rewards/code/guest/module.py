"""The solution as the module that tests import: its globals in, what they are now out.

A global that is plain data and cannot change in place may be given another value, by the solution or by the tests
(`solution.RATE = 5`). The first shows here, in the module and under the bare name, with the answer to the call that did
it; the second is done there too. What tests imported by name stays what it was, as in Python.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from grpo.rewards.code.guest.handles import Unjudgeable
from grpo.rewards.code.guest.values import VALUES, Malformed


class Solution(types.ModuleType):
    """The module of the solution, as the tests see it.

    Args:
        found: its globals.
        set_there: gives one of them another value in the other sandbox.
    """

    def __init__(self, found: dict[str, Any], set_there: Callable[[str, Any], None]) -> None:
        super().__init__("solution")
        vars(self).update(found)
        vars(self)["__grpo_set__"] = set_there

    def __setattr__(self, name: str, value: Any) -> None:
        if name[:2] != "__":
            vars(self)["__grpo_set__"](name, value)
        vars(self)[name] = value


class Globals:
    """The globals of a solution that are plain values, where the tests run.

    Args:
        found: the globals as they were loaded.
        space: the globals of the tests.
        module: the solution as a module.
        imported: the names that the tests import from it.
    """

    def __init__(self, found: dict[str, Any], space: dict[str, Any], module: Solution, imported: list[str]) -> None:
        self._names = {name for name, value in found.items() if type(value) in VALUES}
        self._imported = frozenset(imported)
        self._space = space
        self._module = module

    def now(self, name: Any, value: Any) -> None:
        """Notes another value of one of them.

        Raises:
            Malformed: there is no such global.
        """
        if name not in self._names:
            raise Malformed("a global that nobody knows")
        vars(self._module)[name] = value
        if name not in self._imported:
            self._space[name] = value


class Patch:
    """The fixture `monkeypatch`, for the globals of the solution and for dictionaries; for nothing else."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def setattr(self, target: Any, name: Any, *given: Any, raising: bool = True) -> None:
        """Gives a global of the solution another value, to the end of the test.

        Raises:
            Unjudgeable: it is no global of the solution that is known here.
        """
        if type(target) is str and not given:
            module, _, last = target.rpartition(".")
            target, name, given = sys.modules.get(module), last, (name,)
        if type(target) is not Solution or name not in vars(target):
            raise Unjudgeable("the tests patch what is not the solution's, which it would not see")
        before = vars(target)[name]
        self._undo.append(lambda: setattr(target, name, before))
        setattr(target, name, given[0])

    def setitem(self, target: dict[Any, Any], key: Any, value: Any) -> None:
        """Gives an entry another value, to the end of the test."""
        before = dict(target)

        def undo() -> None:
            target.clear()
            target.update(before)

        self._undo.append(undo)
        target[key] = value

    def __getattr__(self, name: str) -> Any:
        raise Unjudgeable(f"the tests use 'monkeypatch.{name}', whose doing the solution would not see")

    def end(self) -> None:
        """Undoes it all."""
        while self._undo:
            self._undo.pop()()
