"""The untrusted side of the split judge: a solution in, served calls out.

It loads the solution's program in this sandbox and does what the tests on the other side ask for: calls functions,
makes and uses objects, and answers with values. Objects that do not cross by value stay here and are known by a number.
Nothing on this side is trusted: the program shares the interpreter with this module and may replace all of it, which
gains it nothing but the freedom to answer what it likes. It is given arguments and never an expected value.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import builtins
import copy
import importlib
import math
import operator
import signal
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from grpo.rewards.code.guest.channel import Channel, Gone, given
from grpo.rewards.code.guest.customs import customary
from grpo.rewards.code.guest.output import MOST_OUTPUT, Output
from grpo.rewards.code.guest.values import Codec, Malformed, Unsendable, Wire, attributes, is_enumeration, member

MODULE = "solution"
_MOST_ATTRIBUTES = 16
_ONE_BY_ONE, _MORE = 1000, 500
_COLLECTIONS: Any = (list, dict, set, frozenset, tuple)
_METHODS = (types.FunctionType, property, classmethod, staticmethod)
_OPERATORS = (
    "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift lt le gt ge eq ne contains getitem setitem"
    " delitem iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift"
)
_BINARY = {f"__{name}__": getattr(operator, f"__{name}__") for name in _OPERATORS.split()}
_BINARY |= {"__round__": round, "__format__": format, "__divmod__": divmod}
_UNARY: dict[str, Callable[..., Any]] = {
    "__neg__": operator.neg,
    "__pos__": operator.pos,
    "__invert__": operator.invert,
    "__abs__": abs,
    "__len__": len,
    "__str__": str,
    "__repr__": repr,
    "__int__": int,
    "__float__": float,
    "__index__": operator.index,
    "__bool__": bool,
    "__hash__": hash,
    "__iter__": iter,
    "__reversed__": reversed,
    "__round__": round,
    "__bytes__": bytes,
    "__complex__": complex,
    "__floor__": math.floor,
    "__ceil__": math.ceil,
    "__trunc__": math.trunc,
    "__dir__": dir,
    "__aiter__": aiter,
}


class Server:
    """Serves one solution over a channel.

    Args:
        channel: the socket to the tests.
        plain_classes: classes that the tests define; instances of the solution's classes of these names cross by value.
        seconds: processor time of loading and of one unit of the tests, after which the process is ended.
    """

    def __init__(self, channel: Channel, plain_classes: list[str], seconds: float) -> None:
        self._channel = channel
        self._seconds = seconds
        self._plain_classes = frozenset(plain_classes)
        self._codec = Codec(self._refer, self._resolve, self._plain_classes)
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._shadows: dict[str, type] = {}
        self._iterators: dict[int, Given] = {}
        self._waiting: dict[int, Exception] = {}
        self._theirs: list[tuple[BaseException, int]] = []
        self._output = Output()
        self._loop: Any = None
        self._module = types.ModuleType(MODULE)

    def load(self, before: str, source: str, names: list[str]) -> bool:
        """Runs the program and reports the globals that the tests want; returns whether it got that far."""
        signal.setitimer(signal.ITIMER_PROF, self._seconds)
        sys.modules[MODULE] = self._module
        sys.stdout = self._output  # stdin is at its end
        space = vars(self._module)
        try:
            for text in (before, source) if before else (source,):
                code = compile(text, f"<{MODULE}>", "exec", dont_inherit=True)
                offered = {name: value for name, value in customary(code).items() if name not in space}
                space.update(offered)
                exec(code, space)
        except BaseException as error:  # the program may also call sys.exit()
            self._answer(["failed", *self._error(error)])
            return False
        found: dict[str, Wire] = {}
        for name in names:
            own = name in space and space[name] is not offered.get(name, found)
            kind = space.get("Solution")
            if not own and isinstance(kind, type) and callable(getattr(kind, name, None)):
                found[name] = self._safe(_method_of_new(kind, name))
            elif name in space:
                found[name] = self._safe(space[name])
        self._answer(["ready", found])
        return True

    def serve(self) -> None:
        """Answers requests until the other side ends."""
        while True:
            try:
                request = self._channel.receive()
            except Gone:
                return
            if request[-1:] == [True]:
                signal.setitimer(signal.ITIMER_PROF, self._seconds)
            self._do(request)

    def _do(self, request: list[Any]) -> None:
        """Carries one request out and answers it."""
        wires: list[Wire] = []
        read: list[Any] = []
        try:
            kind, number, name, wires, names, _ = request
            read = self._codec.read_all(wires)
            containers = self._codec.containers
            count = len(read) - len(names)
            result = self._carried_out(kind, number, name, read[:count], dict(zip(names, read[count:], strict=True)))
            changed = self._changed(wires, read)
            made = kind == "make" and _is_own_collection(result, self._objects[number])
            known = containers if changed is None else self._codec.containers
            wire = ["H", *self._kept(result)[1:]] if made else self._safe(result, known)
        except BaseException as error:  # whatever the program raises, sys.exit() included, is an answer
            self._answer(["raise", *self._error(error), self._changed(wires, read)])
            return
        self._answer(["value", wire, changed])

    def _carried_out(self, kind: str, number: int, name: str, given: list[Any], named: dict[str, Any]) -> Any:
        target = self._objects[number]
        if kind in ("call", "make"):
            return target(*given, **named)
        if kind == "held":
            return _as_plain(target)
        if kind == "get":
            return getattr(target, name)
        if kind == "set":
            return setattr(target, name, given[0])
        if kind == "items":
            return self._items(number, target, given[0])
        if kind == "delete":
            return delattr(target, name)
        if kind in ("isinstance", "issubclass"):
            return (isinstance if kind == "isinstance" else issubclass)(given[0], target)
        if kind == "kind":
            return type(target).__name__
        if kind == "copy":
            return getattr(copy, name)(target)
        if kind == "library":
            module, _, function = name.partition(".")
            return getattr(importlib.import_module(module), function)(target, *given, **named)
        if kind == "aenter":
            return self._awaited(target.__aenter__())
        if kind == "aexit":
            error = None if given[0] is None else self._raised(*given[0])
            return self._awaited(target.__aexit__(None if error is None else type(error), error, None))
        if kind == "anext":
            return self._next_awaited(target)
        if kind == "number":
            return _number(target)
        if kind == "await":
            return self._awaited(target)
        if kind == "enter":
            return target.__enter__()
        if kind == "exit":
            error = None if given[0] is None else self._raised(*given[0])
            return target.__exit__(None if error is None else type(error), error, None)
        if kind == "type":
            return type(target)
        if name in _UNARY and not given:
            return _UNARY[name](target)
        if name in _BINARY:
            return _BINARY[name](target, *given)
        return _BINARY[f"__{name[3:]}"](given[0], target)

    def _items(self, number: int, iterator: Any, most: int) -> tuple[bool, list[Any]]:
        """Returns whether the iterator has ended, and its next items; what it raises waits for them to be taken."""
        items: list[Any] = []
        if number in self._waiting:
            raise self._waiting.pop(number)
        while len(items) < most:
            try:
                items.append(next(iterator))
            except StopIteration:
                return True, items
            except Exception as error:
                if not items:
                    raise
                self._waiting[number] = error
                break
        return False, items

    def _awaited(self, coroutine: Any) -> Any:
        """Returns what a coroutine gives, run in the one event loop of this solution."""
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(coroutine)

    def _next_awaited(self, iterator: Any) -> list[Any]:
        """Returns the next item of an asynchronous iterator, or nothing at its end."""

        async def following() -> list[Any]:
            try:
                return [await anext(iterator)]
            except StopAsyncIteration:
                return []

        return self._awaited(following())  # type: ignore[no-any-return]

    def _answer(self, answer: list[Any]) -> None:
        text = self._output.taken()
        try:
            self._channel.send([*answer, text])
        except ValueError as error:
            self._channel.send(["raise", ["ValueError", "Exception"], str(error), [str(error)], [], None, None, text])

    def _safe(self, value: Any, known: Sequence[Any] = ()) -> Wire:
        """Returns the wire form of a result; what cannot cross by value stays here as an object."""
        try:
            return self._codec.write_all([value], known)[0]
        except (Unsendable, RecursionError):
            return self._kept(value)

    def _safe_part(self, value: Any) -> Wire:
        """Returns the same of a part of something that is being written."""
        try:
            return self._fresh().write(value)
        except (Unsendable, RecursionError):
            return self._kept(value)

    def _changed(self, wires: list[Wire], read: list[Any]) -> list[Wire] | None:
        """Returns the arguments as the call left them, or None when it left them as they came."""
        if not any(type(wire) is list for wire in wires) or len(read) != len(wires):
            return None
        try:
            after = self._codec.write_all(read)
        except (Unsendable, RecursionError):
            return None
        return None if after == wires else after

    def _error(self, error: BaseException) -> list[Any]:
        """Returns the names of an exception's classes, its text, its arguments, its other attributes and whose it is.

        One that a function of the tests raised is theirs, and known by its place.
        """
        kinds = [kind.__name__ for kind in type(error).__mro__]
        try:
            text = str(error)[:MOST_OUTPUT]
            held = [[name, self._safe_part(value)] for name, value in list(vars(error).items())[:_MOST_ATTRIBUTES]]
        except Exception:
            text, held = "", []  # of an exception whose own methods fail only its class is told
        given = []
        for argument in error.args[:8]:
            try:
                given.append(self._fresh().write(argument))
            except (Unsendable, RecursionError):
                given.append(type(argument).__name__)
        return [kinds, text, given, held, next((place for one, place in self._theirs if one is error), None)]

    def _number(self, value: Any) -> int:
        """Keeps an object and returns its number, the same one each time."""
        key = id(value)
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers) + 1
            self._objects[self._numbers[key]] = value
        return self._numbers[key]

    def _kept(self, value: Any) -> Wire:
        kinds: list[str] = []
        if isinstance(value, type) and issubclass(value, BaseException):
            kinds = [kind.__name__ for kind in value.__mro__]
        name = getattr(value, "__name__", "")
        tag = "a" if type(value) is types.CoroutineType else "h"
        return [tag, self._number(value), name if type(name) is str else "", isinstance(value, type), kinds]

    def _refer(self, value: Any, codec: Codec) -> Wire:
        if isinstance(value, Callback):
            return ["k", value.number, ""]
        if isinstance(value, Given):
            return ["I", value.number]
        kind = type(value)
        if isinstance(value, BaseException):
            return ["x", *self._error(value)[:4]]
        held = attributes(value) if kind.__name__ in self._plain_classes else None
        if held is not None:
            known = codec.known(value)
            if known is not None:
                return known
            codec.note(value)
            parts = codec.part()
            return ["o", kind.__name__, [[name, parts.write_part(item)] for name, item in held.items()]]
        return self._kept(value)

    def _fresh(self) -> Codec:
        """Returns what writes and reads what an exception or a member holds: nothing is shared there."""
        return Codec(self._refer, self._resolve, self._plain_classes)

    def _resolve(self, tag: str, wire: list[Any], codec: Codec) -> Any:
        if tag == "h":
            return self._objects[wire[1]]
        if tag == "k":
            return Callback(wire[1], wire[2], self._ask)
        if tag == "x":
            return self._raised(wire[1], [self._fresh().read(item) for item in wire[2]])
        if tag == "I":
            return self._iterators.setdefault(wire[1], Given(wire[1], self._ask))
        if tag == "o":
            _, name, pairs = wire
            own = vars(self._module).get(name)
            kind = own if isinstance(own, type) else self._shadows.setdefault(name, type(name, (), {}))
            made: Any = object.__new__(kind)
            codec.containers.append(made)
            parts = codec.part()
            for key, item in pairs:
                object.__setattr__(made, key, parts.read_part(item))
            return made
        if tag == "m":
            _, name, chosen, wire_value = wire
            known, plain = vars(self._module).get(name), self._fresh().read(wire_value)
            return member(known, chosen, plain) if is_enumeration(known) else plain
        raise Malformed(f"no value has the tag {tag!r}")

    def _raised(self, kinds: list[str], given: list[Any]) -> BaseException:
        """Returns what the tests raised: an exception of the solution's own or of the built-in ones, else the nearest.

        One that neither has gets its own name.
        """
        own = vars(self._module)
        known = [own.get(name, getattr(builtins, name, None)) for name in kinds]
        found: Any = next(
            (kind for kind in known if isinstance(kind, type) and issubclass(kind, BaseException)), Exception
        )
        kind: Any = found if found.__name__ == kinds[0] else type(kinds[0], (found,), {})
        error: BaseException = kind(*given) if kind is SystemExit else kind.__new__(kind)
        error.args = tuple(given)
        return error

    def _ask(self, number: int, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Calls a function of the tests, serving what that asks for in turn."""
        self._channel.send(
            ["callback", number, [self._safe(item) for item in given], {key: self._safe(named[key]) for key in named}]
        )
        while True:
            message = self._channel.receive()
            if message[0] == "returned":
                return self._codec.read(message[1])
            if message[0] == "raised":
                error = self._raised(message[1], [self._codec.read(wire) for wire in message[2]])
                self._theirs.append((error, message[3]))
                raise error
            self._do(message)


class Callback:
    """A function of the tests, as the solution sees it."""

    def __init__(self, number: int, name: str, ask: Callable[[int, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        self.number = number
        self.__name__ = self.__qualname__ = name
        self._ask = ask

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._ask(self.number, given, named)


class Given:
    """An iterator of the tests, as the solution sees it: first read one by one, as what is not read is not taken."""

    def __init__(self, number: int, ask: Callable[[int, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        self.number = number
        self._ask = ask
        self._items: list[Any] = []
        self._taken, self._ended = 0, False

    def __iter__(self) -> Given:
        return self

    def __next__(self) -> Any:
        if not self._items and not self._ended:
            self._items, self._ended = self._ask(self.number, (1 if self._taken < _ONE_BY_ONE else _MORE,), {})
            self._items.reverse()
            self._taken += len(self._items)
        if not self._items:
            raise StopIteration
        return self._items.pop()


def _is_own_collection(value: Any, target: Any) -> bool:
    """Returns whether a class of the solution made an object of itself that is a collection with methods of its own."""
    kind = type(value)
    if kind is not target or not issubclass(kind, _COLLECTIONS) or kind in _COLLECTIONS:
        return False
    bases = [base for base in kind.__mro__ if base.__module__ == MODULE]
    methods = {name for base in bases for name, part in vars(base).items() if isinstance(part, _METHODS)}
    return not issubclass(kind, tuple) or any(not name.startswith("_") for name in methods)


def _number(value: Any) -> int | float | None:
    """Returns the number that an object stands for, if it stands for one."""
    kind = type(value)
    if hasattr(kind, "__index__"):
        return operator.index(value)
    return float(value) if hasattr(kind, "__float__") else None


def _as_plain(value: Any) -> Any:
    """Returns what a collection holds, as a built-in one."""
    kind = next(kind for kind in _COLLECTIONS if isinstance(value, kind))
    return dict(dict.items(value)) if kind is dict else kind(kind.__iter__(value))


def _method_of_new(kind: type, name: str) -> Callable[..., Any]:
    """Returns a function that calls a method of a new object each time, as contest sites do with `Solution`."""

    def call(*given: Any, **named: Any) -> Any:
        return getattr(kind(), name)(*given, **named)

    call.__name__ = name
    return call


def from_input(descriptor: int) -> None:
    """Does what the standard input says; see `main`."""
    main(descriptor, **given())


def main(
    descriptor: int, *, before: str, source: str, names: list[str], plain_classes: list[str], seconds: float
) -> None:
    """Serves one solution until its tests end.

    Args:
        descriptor: the socket to the sandbox of the tests.
        before: definitions that come with the problem, run before the program.
        source: the program.
        names: the globals that the tests use.
        plain_classes: classes that the tests define too; see `Server`.
        seconds: processor time of loading, and of one unit of the tests.
    """
    server = Server(Channel(descriptor), plain_classes, seconds)
    if server.load(before, source, names):
        server.serve()
