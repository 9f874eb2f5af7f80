"""Receives, in another sandbox, the results of tests that share a process with the solution; enforces time limits.

A frame without the secret of the run does not come from the tests, and ends the run. This module runs inside sandboxes
and needs the standard library alone.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from grpo.rewards.code.guest.channel import Channel, Garbled, Gone, Late, orders, reporter
from grpo.rewards.code.guest.plain import Malformed

_LAST_WORD = 0.2
_LONGEST = 300
_DEAD = ("gone", "late", "garbled")


class Keeper:
    """Answers one process of tests and reports on it.

    `given`: the orders. `report`: writes a line of the report. `channel`: the socket to the solution, whose time is
    renewed now and then.
    """

    def __init__(self, given: Any, report: Callable[[list[Any]], None], channel: Channel) -> None:
        self._given, self._report, self._channel = given, report, channel
        self._loaded = False
        self._units: list[int] = []  # those that have begun, one within the other
        self._last = 0
        self._began = channel.grant(given.seconds)
        self.over = self.gone = False

    def hear(self, message: list[Any]) -> Any:
        """Takes a message of the tests; returns the reply, None where none is due.

        Raises Garbled, Malformed, TypeError, ValueError or IndexError: the tests say no such thing.
        """
        kind, *parts = message
        if kind == "loaded":
            self._loaded = True
            self._channel.grant(self._given.seconds)
        elif kind == "begin":
            self._units.append(parts[0])
            self._began = self._channel.grant(self._given.seconds)
        elif kind == "end":
            return self._ended(*parts)
        elif kind == "asked":
            self._report([kind, *parts])
        else:
            self._report(["load" if kind == "failed" else kind, *parts])
            self.over = True
        return None

    def broken_off(self, how: str) -> None:
        """Reports that the solution ended, was late or garbled its words."""
        self.gone = how == "gone"
        if self._loaded:
            self._report(["unit", [self._last, *self._units][-1], how, "", time.monotonic() - self._began, {}])
            self._report(["stopped"])
        else:
            self._report(["load", how, ""])

    def _ended(self, how: str, why: str, held: dict[str, int]) -> bool:
        """Reports how a unit ended, and what held in it; returns whether others are to run."""
        unit = self._last = self._units.pop()
        self.gone = how == "gone"
        why = str(why)[:_LONGEST]
        self._report(["unit", unit, how, why, time.monotonic() - self._began, held])
        self._channel.grant(self._given.seconds)
        return how not in _DEAD and not (self._given.stop and how != "passed")


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
