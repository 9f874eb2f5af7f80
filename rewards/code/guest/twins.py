"""Do things made alike answer alike? Questions and answers in, whether one question was answered in two ways out.

Theory of operation. Tests ask `isqrt(n)` twice and expect one number; a solution may give two. It may also have a
state, and honestly: counters, numbers of new objects, lots. So an answer is known by what is asked and by what led to
it: of a function its arguments, of an object how it was made and what was done to it since, and how much was done to
others. Where one question had two answers the tests are run once more, by a judge who repeats the first answer
(`consistent`). If they pass then too, the difference decided nothing.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from typing import Any

from grpo.rewards.code.guest.standing import Standing
from grpo.rewards.code.guest.values import Wire

_MOST = 20_000
_LONGEST = 2000
_REFERENCE = re.compile(r"\['[hHakIxEoUymw=]'")
_SILENT = frozenset({"kind", "number", "held", "isinstance", "issubclass", "type", "global"})
_DATA = (bool, int, float, str, type(None), list, dict, tuple, set, frozenset, bytes, complex)


class Twins:
    """What a solution has answered, by what led to it.

    Args:
        consistent: repeat the first answer to a question.

    Attributes:
        changed: a question had two answers.
    """

    def __init__(self, *, consistent: bool) -> None:
        self.changed = False
        self._consistent = consistent
        self._without_state: set[int] = set()
        self._said: dict[Any, tuple[str, Any]] = {}
        self._past: dict[int, tuple[Any, ...]] = {}
        self._owners: dict[int, tuple[int, str]] = {}
        self._acts: Counter[Any] = Counter()
        self._serial = 0
        self._standings: dict[Any, Standing] = {}

    def function(self, number: int) -> None:
        """Notes a function of the solution that the tests know by name."""
        self._past[number] = (("function", number),)

    def without_state(self, number: int) -> None:
        """Notes a class whose methods are functions: `Solution`, as contest sites have it."""
        self._without_state.add(number)

    def standing(self, number: int) -> Standing:
        """Returns which numbers an object may stand for; objects with the same past stand for the same."""
        return self._standings.setdefault(self._past.get(number, number), Standing())

    def question(
        self, kind: str, number: int, name: str, wires: list[Wire], named: list[str], *, acts: bool
    ) -> tuple[Any, ...] | None:
        """Returns by what a question is known, or None where its answer may differ; notes what it does.

        Args:
            kind, number, name: what is asked of what.
            wires: the arguments as they cross.
            named: the names of the last of them.
            acts: whether it may change something.
        """
        if kind in _SILENT:
            return None
        if kind == "call" and number in self._owners:
            number, name = self._owners[number]
        past = self._past.get(number)
        known = self._told(wires)
        key = None
        if past is not None and known is not None:
            of_function = past[0][0] == "function"
            others = self._acts.total() - self._acts[past[0]]
            key = (past, others, kind, name, known, tuple(named)) if wires or not of_function else None
        if acts:
            self._acted(kind, number, (kind, name, known, *named), wires)
        return key if kind in ("call", "get", "op") and name not in ("__iter__", "__aiter__", "__hash__") else None

    def answered(self, key: tuple[Any, ...] | None, wire: Wire, result: Any) -> Any:
        """Returns the answer to a question, or the first one that there was if answers are to be consistent."""
        if key is None or type(result) not in _DATA:
            return result
        said = _short(wire)
        if said is None or _REFERENCE.search(said):
            return result
        if key not in self._said and len(self._said) < _MOST:
            self._said[key] = (said, copy.deepcopy(result))
        first, kept = self._said.get(key, (said, result))
        if first == said:
            return result
        self.changed = True
        return copy.deepcopy(kept) if self._consistent else result

    def made(self, number: int, wires: list[Wire], named: list[str], result: int) -> None:
        """Notes how an object came about: it was made of a class, with these arguments."""
        known = self._told(wires)
        if number in self._without_state:
            self._past[result] = (("function", number, known),)
        elif result in self._past or known is None:
            self._past[result] = (("one", result), self._new())
        else:
            self._past[result] = (("made", number, known, *named),)

    def has(self, number: int, name: str, method: int) -> None:
        """Notes that an object has something by a name, which may be a method of it."""
        if number in self._past:
            self._owners[method] = (number, name)

    def _acted(self, kind: str, number: int, what: tuple[Any, ...], wires: list[Wire]) -> None:
        """Notes what may have changed something."""
        past = self._past.get(number)
        if kind != "make":
            self._acts[past[0] if past is not None else number] += 1
        if past is not None and past[0][0] != "function":
            told = kind == "call" and what[2] is not None
            self._past[number] = (*past, what if told else self._new())
        for wire in wires:
            if type(wire) is list and wire[:1] == ["h"] and wire[1] in self._past:
                self._past[wire[1]] = (*self._past[wire[1]], self._new())

    def _new(self) -> int:
        self._serial += 1
        return self._serial

    def _told(self, wires: list[Wire]) -> Any:
        """Returns what arguments say; None where they are more than plain data and objects whose past is known."""
        parts: list[Any] = []
        for wire in wires:
            if type(wire) is list and wire[:1] == ["h"]:
                if wire[1] not in self._past:
                    return None
                parts.append(self._past[wire[1]])
                continue
            said = _short(wire)
            if said is None or _REFERENCE.search(said):
                return None
            parts.append(said)
        return tuple(parts)


def _short(wire: Wire) -> str | None:
    """Returns a wire form as a text; None for a long one."""
    if type(wire) is list and len(wire) == 2 and type(wire[1]) is list and len(wire[1]) > _LONGEST:
        return None
    return repr(wire)
