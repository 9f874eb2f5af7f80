"""Serves a solution's functions to tests in another sandbox, with plain data as arguments and results.

Nothing on this side is trusted. The program may replace all of this module, and gains only the freedom to answer what
it likes: it is given arguments and never an expected value. This module runs inside sandboxes and needs the standard
library alone.
"""

from __future__ import annotations

import contextlib
import signal
from typing import Any

from grpo.rewards.code.guest.channel import line, orders
from grpo.rewards.code.guest.customs import asked_for, line_of, new_module, run_source
from grpo.rewards.code.guest.plain import NotPlain, containers, decode, encode


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
        request = tests.send(_answer(functions[name], arguments, named, given.in_place))


def _answer(function: Any, arguments: list[Any], named: dict[str, Any], in_place: bool) -> list[Any]:
    args = [decode(each) for each in arguments]
    keywords = {name: decode(each) for name, each in named.items()}
    held = containers([*args, *keywords.values()]) if in_place else []
    try:
        result = function(*args, **keywords)
        try:
            answer = ["value", encode(result, convert=True)]
        except NotPlain as error:
            answer = ["other", str(error), bool(result)]
    except BaseException as error:  # whatever the program raises, sys.exit() included, is an answer
        answer = _raised(error)
    return [*answer, _states(held)]


def _raised(error: BaseException) -> list[Any]:
    """An exception: the names of its built-in classes, its arguments, text, attributes, and all in one line."""
    kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
    held: list[Any] = []
    named: dict[str, Any] = {}
    text = None
    with contextlib.suppress(Exception):
        text = f"{error}"
        args = OSError.__reduce__(error)[1] if isinstance(error, OSError) else error.args  # with the name of the file
        held = [encode(each) for each in args]
    for name, value in vars(error).items():
        with contextlib.suppress(Exception):
            named[name] = encode(value)
    return ["raised", kinds, held, text, named, line_of(error)]


def _states(values: list[Any]) -> list[Any]:
    """What arguments hold after a call, container by container; None for one that holds no plain data."""
    known = {id(each): number for number, each in enumerate(values)}
    states: list[Any] = []
    for each in values:
        try:
            states.append(encode(each, convert=True, known=known))
        except (NotPlain, RecursionError):
            states.append(None)
    return states
