"""Keeps the expected values of tests that run in one process with the solution, and decides each comparison.

The other sandbox holds the tests without these values. It says what it found: plain data is compared here. An object of
the solution is asked about several values, in an order that only this side knows; one that agrees with all of them has
agreed with none. A frame without the secret of the run is no word of the tests, and ends the run.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import random
import time
from typing import Any

from grpo.rewards.code.guest.channel import Channel, Garbled, Gone, Late, given
from grpo.rewards.code.guest.near import MANY, candidates
from grpo.rewards.code.guest.plain import Malformed, decode, encode
from grpo.rewards.code.guest.reporting import reporter
from grpo.rewards.code.guest.units import same

_LAST_WORD = 0.2
_LONGEST = 300
_LARGE, _FEW = 20_000, 3


class Keeper:
    """Answers one process of tests and solution.

    Args:
        literals: the expected values, as `encode` writes them.
        required: for each unit the expected values that must be asked for before it can pass.
        forgiving: the units that pass although an assertion in them fails.
        several: expected values of objects that are made alike, for which the tests expect others too: they equal many.
        seed: decides the order of the values that are asked for.
    """

    def __init__(
        self, literals: list[Any], required: list[list[int]], several: list[int], forgiving: list[int], seed: int
    ) -> None:
        self._literals = [decode(each) for each in literals]
        self._required, self._several, self._forgiving = dict(enumerate(required)), several, forgiving
        self._rng = random.Random(seed)
        self._known: set[int] = set()
        self._fault = ""

    def begin(self) -> None:
        """Forgets the unit before."""
        self._known.clear()
        self._fault = ""

    def fault(self, unit: int) -> str:
        """Returns why a unit that says that it passed has not, or ""."""
        if self._fault and unit not in self._forgiving:
            return self._fault
        return "an assertion was left out" if set(self._required.get(unit, ())) - self._known else ""

    def compared(self, place: int, found: Any, tolerance: float | None) -> bool:
        """Returns whether plain data equals the expected value of that place."""
        self._known.add(place)
        expected = self._literals[place]
        ok = found == expected if tolerance is None else same(found, expected, tolerance)
        if not ok:
            self._fault = "another value than expected"
        return bool(ok)

    def asked(self, place: int, value: Any, channel: Channel) -> int:
        """Asks an object which values it equals; returns the place of the expected one, so that the tests go on."""
        if place >= 0:
            self._known.add(place)
            value = self._literals[place]
        count = _FEW if len(str(encode(value))) > _LARGE else MANY
        values, right = candidates(value, self._rng, count)
        channel.send([encode(each) for each in values])
        _, kind, answers = channel.receive()
        if kind != "answers" or len(answers) != len(values):
            raise Garbled
        if place in self._several:
            return right
        most = len(values) - (len(values) == MANY)  # of many values, equal to all but one is equal to all
        if answers[right] == "yes" and answers.count("yes") >= most:
            self._fault = "an object that equals whatever it is compared with"
        elif answers[right] == "both":
            self._fault = "an object that equals a value and does not"
        elif answers[right] == "no":
            self._fault = "another value than expected"
        return right


def from_input(descriptor: int) -> None:
    """Does what the standard input says; see `main`."""
    main(descriptor, **given())


def main(
    descriptor: int,
    nonce: str,
    token: str,
    literals: list[Any],
    *,
    required: list[list[int]],
    several: list[int],
    forgiving: list[int],
    seed: int,
    seconds: float,
    stop: bool,
) -> None:
    """Listens to the sandbox of tests and solution and reports how each unit ended.

    Args:
        descriptor: the socket to it.
        nonce: begins every line of the report.
        token: what each of its frames must begin with.
        literals: see `Keeper`.
        required: likewise, by unit.
        several: likewise.
        forgiving: likewise.
        seed: likewise.
        seconds: wall time of one unit, and of loading.
        stop: end at the first unit that fails.
    """
    report = reporter(nonce)
    channel = Channel(descriptor, trusted=True)
    channel.deadline = time.monotonic() + seconds
    keeper = Keeper(literals, required, several, forgiving, seed)
    unit, began, loaded, depth = -1, time.monotonic(), False, 0
    try:
        while True:
            message = channel.receive()
            if type(message) is not list or len(message) < 2 or message[0] != token:
                raise Garbled
            kind, *parts = message[1:]
            if kind == "loaded":
                loaded = True
                channel.deadline = time.monotonic() + seconds
            elif kind == "failed":
                report(["load", *parts])
                return
            elif kind == "begin":
                if depth == 0:
                    keeper.begin()
                depth += 1
                unit, began = parts[0], time.monotonic()
                channel.deadline = began + seconds
            elif kind == "known":
                channel.send(keeper.compared(parts[0], decode(parts[1]), parts[2]))
            elif kind == "object":
                value = decode(parts[1]) if parts[0] < 0 else None
                channel.send(keeper.asked(parts[0], value, channel))
            elif kind == "end":
                depth -= 1
                how, why = parts[0], str(parts[1])[:_LONGEST]
                fault = keeper.fault(unit) if how == "passed" else ""
                how, why = ("failed", fault) if fault else (how, why)
                report(["unit", unit, how, why, time.monotonic() - began, parts[2]])
                channel.deadline = time.monotonic() + seconds
                channel.send(not (stop and how != "passed"))
            else:
                report([kind, *parts])
                return
    except (Gone, Late, Garbled, Malformed, TypeError, ValueError, IndexError) as error:
        how = type(error).__name__.lower() if isinstance(error, (Gone, Late)) else "garbled"
        if loaded:
            report(["unit", max(unit, 0), how, "", time.monotonic() - began, False])
            report(["stopped", how])
        else:
            report(["load", how, ""])
        if how == "gone":
            time.sleep(_LAST_WORD)  # how the other sandbox ended by itself matters, and it is stopped with this one
