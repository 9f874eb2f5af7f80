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
import functools
import importlib
import io
import math
import operator
import signal
import sys
import types
from collections import deque, namedtuple
from collections.abc import Callable, Sequence
from typing import Any

from grpo.rewards.code.guest.arguments import update
from grpo.rewards.code.guest.callbacks import Callbacks
from grpo.rewards.code.guest.channel import Channel, Gone, given
from grpo.rewards.code.guest.customs import customary, mentions
from grpo.rewards.code.guest.heard import Heard
from grpo.rewards.code.guest.output import MOST_OUTPUT, Output
from grpo.rewards.code.guest.values import (
    MOST_SHARED,
    PLACES,
    VALUES,
    Codec,
    Malformed,
    Unsendable,
    Wire,
    attributes,
    is_enumeration,
    member,
    size,
)

MODULE = "solution"
_MOST_ATTRIBUTES = 16
_ONE_BY_ONE, _MORE = 1000, 500
_COLLECTIONS: Any = (list, dict, set, frozenset, tuple)
_CHANGING: Any = (list, dict, set, bytearray, deque, io.StringIO, io.BytesIO)
_PLAIN_ROW: Any = namedtuple("_PLAIN_ROW", "x")
_WITH_NAMES = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)
_DEEPEST_CAUSE = 2
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
        self._codec = Codec(self._refer, self._resolve, self._plain_classes, owner=self)
        self._callbacks = Callbacks(self._ask)
        self._kinds: dict[str, Any] = {}
        self._shared: dict[int, Any] = {}
        self._objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._shadows: dict[str, type] = {}
        self._iterators: dict[int, Given] = {}
        self._waiting: dict[int, Exception] = {}
        self._theirs: list[tuple[BaseException, int]] = []
        self._output = Output()
        self._heard = Heard(lambda kind: [self._named(base) for base in kind.__mro__])
        self._values: dict[str, Any] = {}
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
                self._heard.listen(mentions(code))
                exec(code, space)
        except BaseException as error:  # the program may also call sys.exit()
            self._answer(["failed", self._error(error)])
            return False
        found: dict[str, Wire] = {}
        for name in names:
            own = name in space and space[name] is not offered.get(name, found)
            kind = space.get("Solution")
            if not own and isinstance(kind, type) and callable(getattr(kind, name, None)):
                found[name] = self._safe(_method_of_new(kind, name))
            elif name in space:
                found[name] = self._safe(space[name])
        self._shared = {-place: space[name] for place, name in enumerate(names, start=1) if _is_shared(space.get(name))}
        self._values = {name: space[name] for name in names if name in space and type(space[name]) in VALUES}
        self._answer(["ready", found, sorted(self._shared)])
        return True

    def serve(self) -> None:
        """Answers requests until the other side ends."""
        while True:
            try:
                request = self._channel.receive()
            except Gone:
                return
            if request[5] is True:
                signal.setitimer(signal.ITIMER_PROF, self._seconds)
            self._do(request)

    def _do(self, request: list[Any]) -> None:
        """Carries one request out and answers it."""
        wires: list[Wire] = []
        read: list[Any] = []
        try:
            kind, number, name, wires, names, _, shared, serial = request
            read = self._read(wires, shared)
            containers = self._codec.containers
            first, count = len(shared), len(read) - len(names)
            named = dict(zip(names, read[count:], strict=True))
            result = self._carried_out(kind, number, name, read[first:count], named)
            kept = [result, *read[first:]]
            self._shared |= {PLACES * serial + n: each for n, each in enumerate(kept[:PLACES]) if _is_shared(each)}
            changed = self._changed(wires, read)
            made = kind == "make" and _is_own_collection(result, self._objects[number])
            known = containers if changed is None else self._codec.containers
            own = kind == "make" and _is_own_text(result, self._objects[number])
            wire = ["H", *self._kept(result)[1:]] if made else self._kept(result) if own else self._safe(result, known)
        except BaseException as error:  # whatever the program raises, sys.exit() included, is an answer
            theirs = next((place for one, place in self._theirs if one is error), None)
            self._answer(["raise", self._error(error), theirs, self._changed(wires, read)])
            return
        self._answer(["value", wire, changed])

    def _read(self, wires: list[Wire], shared: list[int]) -> list[Any]:
        """Returns the arguments of a request; those that the tests and the solution share are the solution's own."""
        self._shared = {serial: self._shared[serial] for serial in shared}
        own = list(self._shared.values())
        if self._aligned(own, wires):
            return [*own, *self._codec.read_all(wires[len(own) :], self._codec.containers)]
        for one, new in zip(own, self._codec.read_all(wires[: len(own)]), strict=True):
            update(one, new, 0, frozenset(), set())
        if self._aligned(own, wires):
            return [*own, *self._codec.read_all(wires[len(own) :], self._codec.containers)]
        return self._codec.read_all(wires)

    def _aligned(self, own: list[Any], wires: list[Wire]) -> bool:
        """Returns whether what is shared is what the tests say that it is."""
        try:
            return repr(self._codec.write_all(own)) == repr(wires[: len(own)])
        except (Unsendable, RecursionError):
            return False

    def number_of(self, value: Any) -> tuple[int, list[str]] | None:
        """Returns the number of data with methods of its own, and those by which it tells of itself."""
        kind = type(value)
        if kind.__module__ != MODULE or not _is_more_than_data(value):
            return None
        bases = [base for base in kind.__mro__ if base.__module__ == MODULE]
        texts = [name for name in ("__str__", "__repr__", "__format__") if any(name in vars(base) for base in bases)]
        if "__repr__" in texts:
            texts.append("__str__")
        if "__str__" in texts:
            texts.append("__format__")
        return self._number(value), ([] if hasattr(kind, "_fields") and texts[:1] == ["__repr__"] else texts)

    def numbered(self, number: Any, texts: Any, wire: Wire, plain: Any) -> Any:
        """Returns the object of that number, which holds what it does where the tests have it."""
        found = self._objects[number]
        if issubclass(type(found), _CHANGING) and repr(self._fresh().write(found)[3]) != repr(wire):
            update(found, _like(found, plain), 0, frozenset(), set())
        return found

    def _carried_out(self, kind: str, number: int, name: str, given: list[Any], named: dict[str, Any]) -> Any:
        if kind == "global":
            return setattr(self._module, name, given[0])
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
            return "str" if isinstance(target, str) else type(target).__name__
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

    def _items(self, number: int, iterator: Any, most: int) -> tuple[bool, list[Any], Any]:
        """Returns whether the iterator has ended, its next items, and with what it ended.

        What it raises waits for the items before it to be taken.
        """
        items: list[Any] = []
        if number in self._waiting:
            raise self._waiting.pop(number)
        while len(items) < most:
            try:
                items.append(next(iterator))
            except StopIteration as end:
                return True, items, end.value
            except Exception as error:
                if not items:
                    raise
                self._waiting[number] = error
                break
        return False, items, None

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
        text = [self._output.taken(), self._other_values(), self._heard.taken()]
        try:
            self._channel.send([*answer, text])
        except ValueError as error:
            told = [["ValueError", "Exception"], str(error), [str(error)], [], None, None]
            self._channel.send(["raise", told, None, None, text])

    def _other_values(self) -> list[Wire]:
        """Returns those of the plain globals that have another value than before."""
        space = vars(self._module)
        changed = [(name, space.get(name)) for name, value in self._values.items() if space.get(name) is not value]
        self._values.update(changed)
        return [[name, self._safe_part(value)] for name, value in changed]

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

    def _error(self, error: BaseException, depth: int = 0) -> list[Any]:
        """Returns an exception: its classes, text, arguments and other attributes, its number, and what led to it."""
        kinds = [self._named(kind) for kind in type(error).__mro__]
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
        number = self._number(error) if type(error).__module__ == MODULE else None
        before = [error.__cause__, error.__context__]
        chain = None
        if before != [None, None] and depth < _DEEPEST_CAUSE:
            told = [None if each is None else self._error(each, depth + 1) for each in before]
            chain = [*told, error.__suppress_context__]
        return [kinds, text, given, held, number, chain]

    def _named(self, kind: type) -> Any:
        """Returns the name of a class, and the number of one that is the solution's own."""
        return [kind.__name__, self._number(kind)] if kind.__module__ == MODULE else kind.__name__

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
            kinds = [self._named(kind) for kind in value.__mro__]
        name = getattr(value, "__name__", "") if isinstance(value, _WITH_NAMES) else ""
        tag = "a" if type(value) is types.CoroutineType else "h"
        return [tag, self._number(value), name if type(name) is str else "", isinstance(value, type), kinds]

    def _refer(self, value: Any, codec: Codec) -> Wire:
        number = self._callbacks.number_of(value)
        if number is not None:
            return ["k", number, "", None]
        if isinstance(value, Given):
            return ["I", value.number]
        kind = type(value)
        if isinstance(value, BaseException):
            return ["x", *self._error(value)]
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
        return Codec(self._refer, self._resolve, self._plain_classes, owner=self)

    def _resolve(self, tag: str, wire: list[Any], codec: Codec) -> Any:
        if tag == "h":
            return self._objects[wire[1]]
        if tag == "k":
            facts = wire[3] and [*wire[3][:-1], [self._fresh().read(each) for each in wire[3][-1]]]
            return self._callbacks.made(wire[1], wire[2], facts)
        if tag == "E":
            return self._error_kind(wire[1])
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
        kind = self._error_kind(kinds)
        error: BaseException = kind(*given) if kind is SystemExit else kind.__new__(kind)
        error.args = tuple(given)
        return error

    def _error_kind(self, kinds: list[str]) -> Any:
        """Returns the class of an exception of the tests, the same one each time."""
        own = vars(self._module)
        known = [own.get(name, getattr(builtins, name, None)) for name in kinds]
        found: Any = next(
            (kind for kind in known if isinstance(kind, type) and issubclass(kind, BaseException)), Exception
        )
        if found.__name__ == kinds[0]:
            return found
        return self._kinds.setdefault(kinds[0], type(kinds[0], (found,), {}))

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
                number = message[4]
                arguments = [self._codec.read(wire) for wire in message[2]]
                error = self._raised(message[1], arguments) if number is None else self._objects[number]
                self._theirs.append((error, message[3]))
                raise error
            self._do(message)


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


def _is_shared(value: Any) -> bool:
    """Returns whether that is a container that the tests and the solution may both change, and small enough."""
    return isinstance(value, _CHANGING) and size(value) <= MOST_SHARED


def _is_more_than_data(value: Any) -> bool:
    """Returns whether an instance of a class of the solution has what the data in it has not."""
    kind: Any = type(value)
    if not issubclass(kind, tuple) or not hasattr(kind, "_fields"):
        return True
    plain = {*vars(_PLAIN_ROW), *kind._fields, "__annotations__", "__orig_bases__"}
    return any(vars(base).keys() - plain for base in kind.__mro__ if base.__module__ == MODULE)


def _like(found: Any, plain: Any) -> Any:
    """Returns what an object is to hold, in an object of its class."""
    kind: Any = type(found)
    made = kind.__new__(kind)
    if isinstance(found, list):
        list.extend(made, plain)
    elif isinstance(found, set):
        set.update(made, plain)
    elif isinstance(found, dict):
        dict.update(made, plain)
    return made


def _is_own_collection(value: Any, target: Any) -> bool:
    """Returns whether a class of the solution made an object of itself that is a collection with methods of its own."""
    kind = type(value)
    if kind is not target or not issubclass(kind, _COLLECTIONS) or kind in _COLLECTIONS:
        return False
    bases = [base for base in kind.__mro__ if base.__module__ == MODULE]
    methods = {name for base in bases for name, part in vars(base).items() if isinstance(part, _METHODS)}
    return not issubclass(kind, tuple) or any(not name.startswith("_") for name in methods)


def _is_own_text(value: Any, target: Any) -> bool:
    """Returns whether a class of the solution made a text that compares in its own way."""
    kind = type(value)
    if kind is not target or not issubclass(kind, str) or is_enumeration(kind):
        return False
    return any("__eq__" in vars(base) for base in kind.__mro__ if base.__module__ == MODULE)


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
