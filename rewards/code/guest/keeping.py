"""Keeps the expected values of tests that run in one process with the solution, and decides each comparison.

The other sandbox holds the tests without these values. It says what it found: plain data is compared here. An object of
the solution is asked about several values, in an order that only this side knows; one that agrees with all of them has
agreed with none. A frame without the secret of the run is no word of the tests, and ends the run.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from grpo.rewards.code.guest.channel import Channel, Garbled, Gone, Late, orders, reporter
from grpo.rewards.code.guest.near import BOTH, EVERYTHING, MANY, candidates
from grpo.rewards.code.guest.plain import Malformed, decode, encode
from grpo.rewards.code.guest.units import same

_LAST_WORD = 0.2
_LONGEST = 300
_LARGE, _FEW = 20_000, 3
_DEAD = ("gone", "late", "garbled")


class Keeper:
    """Answers one process of tests and reports on it.

    Args:
        given: the orders.
        report: writes a line of the report.
        channel: the socket to the solution, which gets its time anew now and then.
    """

    def __init__(self, given: Any, report: Callable[[list[Any]], None], channel: Channel) -> None:
        self._given, self._report, self._channel = given, report, channel
        self._literals = [decode(each) for each in given.literals]
        self._rng = random.Random(given.seed)
        self._loaded = False
        self._units: list[int] = []  # those that have begun, one within the other
        self._last = 0
        self._fault = ""
        self._equal: set[int] = set()  # the places of expected values that were found equal in the unit
        self._asked: tuple[int, int, int, int] = (-1, 0, 0, 0)
        self._began = channel.grant(given.seconds)
        self.over = self.gone = False

    def hear(self, message: list[Any]) -> Any:
        """Takes what the tests say; returns the reply, None where none is due.

        Raises:
            Garbled, Malformed, TypeError, ValueError, IndexError: it is nothing that tests say.
        """
        kind, *parts = message
        if kind == "loaded":
            self._loaded = True
            self._channel.grant(self._given.seconds)
        elif kind == "begin":
            if not self._units:
                self._fault = ""
                self._equal.clear()
            self._units.append(parts[0])
            self._began = self._channel.grant(self._given.seconds)
        elif kind == "known":
            return self._compared(parts[0], decode(parts[1]), parts[2])
        elif kind == "object":
            return self._candidates(parts[0], decode(parts[1]))
        elif kind == "answers":
            return self._right(*parts)
        elif kind == "end":
            return self._ended(*parts)
        else:
            self._report(["load" if kind == "failed" else kind, *parts])
            self.over = True
        return None

    def broken_off(self, how: str) -> None:
        """Reports that the solution ended, was late or garbled its words."""
        self.gone = how == "gone"
        if self._loaded:
            self._report(["unit", [self._last, *self._units][-1], how, "", time.monotonic() - self._began, ""])
            self._report(["stopped"])
        else:
            self._report(["load", how, ""])

    def _ended(self, how: str, why: str, answers: str) -> bool:
        """Reports how a unit ended, and what objects answered in it; returns whether others are to run."""
        unit = self._last = self._units.pop()
        self.gone = how == "gone"
        if how == "passed":
            missing = not self._given.asks and not self._equal.issuperset(self._given.required[unit])
            fault = self._fault or ("an expected value was not compared" if missing else "")
            if fault and (not self._given.forgiving or fault in (BOTH, EVERYTHING)):
                how, why = "failed", fault
        why = str(why)[:_LONGEST]
        self._report(["unit", unit, how, why, time.monotonic() - self._began, answers])
        self._channel.grant(self._given.seconds)
        return how not in _DEAD and not (self._given.stop and how != "passed")

    def _compared(self, place: int, value: Any, tolerance: float | None) -> bool:
        """Returns whether plain data equals the expected value of that place."""
        expected = self._literals[place]
        ok = bool(value == expected if tolerance is None else same(value, expected, tolerance))
        if ok:
            self._equal.add(place)
        elif not self._given.asks:
            self._fault = "another value than expected"
        return ok

    def _candidates(self, place: int, value: Any) -> list[Any]:
        """Returns the values that an object is asked about."""
        if place >= 0:
            value = self._literals[place]
        count = _FEW if len(str(encode(value))) > _LARGE else MANY
        values, right = candidates(value, self._rng, count)
        most = len(values)  # which an object may not equal; half of the numbers may be what a remainder tells
        if most == MANY:
            most = MANY // 2 + 1 if type(value) in (int, float) else MANY // 2 - 1
        self._asked = place, len(values), right, most
        return [encode(each) for each in values]

    def _right(self, answers: list[str], decides: bool) -> list[Any]:
        """Judges which of the values an object equals; returns the place of the expected one and what is wrong.

        The tests go on. What is wrong counts at once where the tests ask for this value, else if they find them equal.
        """
        place, count, right, most = self._asked
        if len(answers) != count:
            raise Garbled
        if answers[right] == "raised":  # the tests get what was raised, and do not hear for which value
            return [self._rng.choice([at for at, answer in enumerate(answers) if answer == "raised"]), ""]
        fault = ""
        if answers[right] == "yes":
            self._equal.add(place)
        if place in self._given.several:
            return [right, fault]
        if answers[right] == "yes" and answers.count("yes") >= most:
            fault = EVERYTHING
        elif answers[right] == "both":
            fault = BOTH
        elif answers[right] == "no" and place >= 0 and (decides or not self._given.asks):
            fault = "another value than expected"
        if place >= 0:
            self._fault = fault or self._fault
        return [right, fault]


@contextlib.contextmanager
def conversing(given: Any, channel: Channel) -> Iterator[tuple[Keeper, Channel]]:
    """Reports how a conversation with the sandbox of the solution ends where it does not end by itself."""
    keeper = Keeper(given, reporter(), channel)
    try:
        yield keeper, channel
    except (Gone, Late, Garbled, Malformed, TypeError, ValueError, IndexError) as error:
        keeper.broken_off(type(error).__name__.lower() if isinstance(error, (Gone, Late)) else "garbled")
    if keeper.gone:
        time.sleep(_LAST_WORD)  # how the other sandbox ended by itself matters, and it is stopped with this one


def main(descriptor: int) -> None:
    """Listens to the sandbox of tests and solution at the other end and reports how each unit ended."""
    given = orders()
    with conversing(given, Channel(descriptor, given.token)) as (keeper, channel):
        while not keeper.over:
            reply = keeper.hear(channel.receive())
            if reply is not None:
                channel.send(reply)
