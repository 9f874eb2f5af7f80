"""Tests and solution in one sandbox, for tests that cannot be split: a report on the sandbox's output out.

The solution shares the interpreter with the tests and can therefore fake their report. What is judged like this is
tagged as `integrity="shared"`. The report has the form of `guest.tests`.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import types
from collections.abc import Collection
from typing import Any

from grpo.rewards.code.guest.channel import given
from grpo.rewards.code.guest.customs import SOLUTION_MODULES, customary
from grpo.rewards.code.guest.failures import Failures
from grpo.rewards.code.guest.tests import UNITS, Nowhere, Stop, Units


class Here:
    """Stands for the other sandbox, where there is none.

    Args:
        seconds: processor time of one unit.

    Attributes:
        dead: nothing ends here but the process.
        failures: what failed; nothing can be kept from the tests by another sandbox.
        apart: what the solution raises cannot be told from what the tests raise.
        changed: nothing is known of what answered whom.
        channel: has the deadline that `Units` sets; nobody keeps it.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.dead = ""
        self.failures = Failures()
        self.apart = False
        self.changed = False
        self.channel = types.SimpleNamespace(deadline=None)

    def begin_unit(self) -> None:
        """Begins a unit: the process is ended when it takes more processor time."""
        self.failures.begin()
        signal.setitimer(signal.ITIMER_PROF, self._seconds)

    @property
    def pinned(self) -> Here:
        """What assertions that ask for one value stand in: the same as all others."""
        return self

    def caused(self, error: BaseException | None) -> bool:
        """Returns False: what the solution raises cannot be told from what the tests raise."""
        return False

    def identical(self, one: Any, other: Any) -> bool:
        """Returns whether two values are one object."""
        return one is other

    def type_of(self, value: Any) -> Any:
        """Returns the class of a value."""
        return type(value)

    def show(self) -> None:
        """Does nothing: here all changes show at once."""

    def __enter__(self) -> None:
        """Begins an assertion; nothing is held back here."""

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Ends it."""


def from_input() -> None:
    """Does what the standard input says; see `main`."""
    main(**given())


def main(
    *, nonce: str, before: str, program: str, source: str, names: list[str], first: int, seconds: float, stop: bool
) -> None:
    """Runs a solution and its tests in this process.

    Args:
        nonce: begins every line of the report.
        before: definitions that come with the problem.
        program: the solution.
        source: the tests, as `assert_plan` prepares them.
        names: the globals that the solution must define.
        first: the first unit to run.
        seconds: processor time of loading, and of one unit.
        stop: end at the first unit that fails.
    """
    output = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr = Nowhere()

    def report(line: list[Any]) -> None:
        os.write(output, f"{nonce} {json.dumps(line)}\n".encode("ascii"))

    module: Any = types.ModuleType("solution")
    for name in SOLUTION_MODULES:
        sys.modules[name] = module
    space = vars(module)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        for text in (before, program):
            _run(text, space, ())
    except BaseException as error:  # the program may also call sys.exit()
        report(["load", "raised", f"{type(error).__name__}: {error}"[:300]])
        return
    units = Units(Here(seconds), report, first, 0.0, stop)
    units.space, space[UNITS] = space, units
    try:
        _run(source, space, names)
    except Stop:
        report(["stopped", ""])
    except BaseException as error:
        report(["broken", f"{type(error).__name__}: {error}"[:300]])
    else:
        report(["done"])


def _run(text: str, space: dict[str, Any], names: Collection[str]) -> None:
    code = compile(text, "<program>", "exec", dont_inherit=True)
    space.update({name: value for name, value in customary(code).items() if name not in (*space, *names)})
    exec(code, space)
