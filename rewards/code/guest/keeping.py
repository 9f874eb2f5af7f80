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

from grpo.rewards.code.guest.channel import Channel, Garbled, Gone, Late, orders, reporter
from grpo.rewards.code.guest.near import MANY, candidates
from grpo.rewards.code.guest.plain import Malformed, decode, encode
from grpo.rewards.code.guest.units import same

_LAST_WORD = 0.2
_LONGEST = 300
_LARGE, _FEW = 20_000, 3


class Keeper:
    """Answers one process of tests and solution.

    Args:
        given: the orders.
        channel: the socket to it.
    """

    def __init__(self, given: Any, channel: Channel) -> None:
        self._channel = channel
        self._literals = [decode(each) for each in given.literals]
        self._required, self._several, self._forgiving = given.required, given.several, given.forgiving
        self._rng = random.Random(given.seed)
        self.begin()

    def begin(self) -> None:
        """Forgets the unit before."""
        self._known: set[int] = set()
        self._fault = ""

    def fault(self, unit: int) -> str:
        """Returns why a unit that says that it passed has not, or ""."""
        if self._fault and unit not in self._forgiving:
            return self._fault
        return "an assertion was left out" if set(self._required[unit]) - self._known else ""

    def compared(self, place: int, found: Any, tolerance: float | None) -> bool:
        """Returns whether plain data equals the expected value of that place."""
        self._known.add(place)
        expected = self._literals[place]
        ok = bool(found == expected if tolerance is None else same(found, expected, tolerance))
        if not ok:
            self._fault = "another value than expected"
        return ok

    def asked(self, place: int, value: Any) -> int:
        """Asks an object which values it equals; returns the place of the expected one, so that the tests go on."""
        if place >= 0:
            self._known.add(place)
            value = self._literals[place]
        count = _FEW if len(str(encode(value))) > _LARGE else MANY
        values, right = candidates(value, self._rng, count)
        self._channel.send([encode(each) for each in values])
        _, kind, answers = self._channel.receive()
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


def main(descriptor: int) -> None:
    """Listens to the sandbox of tests and solution at the other end and reports how each unit ended."""
    given = orders()
    report = reporter(given.nonce)
    channel = Channel(descriptor, trusted=True)
    keeper = Keeper(given, channel)
    unit, loaded, depth = -1, False, 0

    def wait() -> float:
        """Gives the other side its time anew; returns the time of the clock."""
        now = time.monotonic()
        channel.deadline = now + given.seconds
        return now

    began = wait()
    try:
        while True:
            message = channel.receive()
            if type(message) is not list or len(message) < 2 or message[0] != given.token:
                raise Garbled
            kind, *parts = message[1:]
            if kind == "loaded":
                loaded = True
                wait()
            elif kind == "begin":
                if depth == 0:
                    keeper.begin()
                depth += 1
                unit, began = parts[0], wait()
            elif kind == "known":
                channel.send(keeper.compared(parts[0], decode(parts[1]), parts[2]))
            elif kind == "object":
                channel.send(keeper.asked(parts[0], decode(parts[1])))
            elif kind == "end":
                depth -= 1
                how, why, changed = parts
                fault = keeper.fault(unit) if how == "passed" else ""
                how, why = ("failed", fault) if fault else (how, str(why)[:_LONGEST])
                report(["unit", unit, how, why, time.monotonic() - began, changed])
                wait()
                channel.send(not (given.stop and how != "passed"))
            else:
                report(["load" if kind == "failed" else kind, *parts])
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
