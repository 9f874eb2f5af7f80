"""Serves a solution's functions to tests in another sandbox, with plain data as arguments and results.

Nothing on this side is trusted. The program may replace all of this module, and gains only the freedom to answer what
it likes: it is given arguments and never an expected value. This module runs inside sandboxes and needs the standard
library alone.
"""

from __future__ import annotations

import signal
from typing import Any

from grpo.rewards.code.guest.channel import line, orders
from grpo.rewards.code.guest.customs import asked_for, line_of, new_module, run_source
from grpo.rewards.code.guest.plain import NotPlain, decode, encode

_CHANGING = (list, dict, set, bytearray)


def main(descriptor: int) -> None:
    """Loads a solution and answers calls of its functions until the descriptor ends."""
    given = orders()
    tests = line(descriptor, "", ("ready", "value", "other", "raised"))
    next(tests)
    signal.setitimer(signal.ITIMER_PROF, given.seconds)
    module = new_module()
    try:
        run_source(module, given.setup)
        before = dict(vars(module))
        before |= run_source(module, given.program)
        functions = {name: asked_for(module, name, before) for name in given.names}
    except BaseException as error:  # the program may also call sys.exit()
        tests.send(["failed", line_of(error)])
        return
    request = tests.send(["ready"])
    while True:
        name, arguments, named, begins = request
        if begins:
            signal.setitimer(signal.ITIMER_PROF, given.seconds)
        request = tests.send(_answer(functions[name], arguments, named))


def _answer(function: Any, arguments: list[Any], named: dict[str, Any]) -> list[Any]:
    args = [decode(each) for each in arguments]
    keywords = {name: decode(each) for name, each in named.items()}
    try:
        result = function(*args, **keywords)
        try:
            answer = ["value", encode(result, convert=True)]
        except NotPlain as error:
            answer = ["other", str(error), bool(result)]
    except BaseException as error:  # whatever the program raises, sys.exit() included, is an answer
        kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
        try:
            held = [encode(each) for each in error.args]
        except Exception:
            held = []
        answer = ["raised", kinds, held, line_of(error)]
    return [*answer, _changed([*args, *keywords.values()], [*arguments, *named.values()])]


def _changed(values: list[Any], wires: list[Any]) -> list[Any]:
    """The arguments that the call changed in place: their positions and new contents."""
    changed = []
    for place, (value, wire) in enumerate(zip(values, wires, strict=True)):
        if isinstance(value, _CHANGING):
            try:
                now = encode(value, convert=True)
            except (NotPlain, RecursionError):
                continue
            if now != wire:
                changed.append([place, now])
    return changed
