"""Data with methods of its own: what an object of the solution holds and its stand-in in, data that can be asked out.

A `class Stats(list)` that a function returned compares, counts and adds as the list that it is, where the tests run.
Only what no list has (`stats.mean()`) is asked for in the other sandbox, and how it tells of itself (`str(stats)`), if
its class says that in a way of its own.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from typing import Any

from grpo.rewards.code.guest.handles import Handle, inside
from grpo.rewards.code.guest.values import Malformed

_THERE, _TEXTS = "__grpo_there__", "__grpo_texts__"
_TELLING = frozenset({"__str__", "__repr__", "__format__"})
_KINDS: dict[type, type] = {}
_CHANGING = (list, dict, set, bytearray, deque)


def kept(plain: Any, stand_in: Handle, texts: Any) -> Any:
    """Returns data that is also an object of the solution.

    Args:
        plain: what it holds.
        stand_in: stands for the object.
        texts: the names of the methods by which its class tells of itself.

    Raises:
        Malformed: it is of a kind that has no subclasses.
    """
    kind = _kind(type(plain))
    made: Any
    if isinstance(plain, list | set):
        made = kind()
        (list.extend if isinstance(plain, list) else set.update)(made, plain)
    elif isinstance(plain, dict):
        made = kind()
        if isinstance(plain, defaultdict):
            made.default_factory = plain.default_factory
        (OrderedDict if isinstance(plain, OrderedDict) else dict).update(made, plain)
    elif isinstance(plain, deque):
        made = kind(plain, plain.maxlen)
    elif isinstance(plain, tuple):
        made = tuple.__new__(kind, plain)
    else:
        made = kind(plain)
    vars(made)[_THERE] = stand_in
    vars(made)[_TEXTS] = texts
    return made


def stands_for(value: Any) -> Handle | None:
    """Returns the stand-in of what is data too; None for mere data."""
    return vars(value)[_THERE] if type(value) in _MADE else None


def texts_of(value: Any) -> list[str]:
    """Returns by which methods the class of what is data too tells of itself, as they came."""
    found: list[str] = vars(value)[_TEXTS]
    return found


def changes(value: Any) -> bool:
    """Returns whether what is data too can change."""
    return isinstance(value, _CHANGING)


_MADE: set[type] = set()


def _kind(base: type) -> type:
    if base not in _KINDS:
        if base in (bool, range, type(None)) or base in _MADE:
            raise Malformed("of such data there is nothing more")
        space: dict[str, Any] = {"__getattr__": _asked, "__setattr__": _set, "__delattr__": _deleted}
        space |= {name: _telling(name, getattr(base, name)) for name in _TELLING}
        _KINDS[base] = type(base.__name__, (base,), space)
        _MADE.add(_KINDS[base])
    return _KINDS[base]


def _asked(self: Any, name: str) -> Any:
    if name[:2] == "__":
        raise AttributeError(name)
    return getattr(vars(self)[_THERE], name)


def _set(self: Any, name: str, value: Any) -> None:
    setattr(vars(self)[_THERE], name, value)


def _deleted(self: Any, name: str) -> None:
    delattr(vars(self)[_THERE], name)


def _telling(name: str, plain: Any) -> Any:
    def tell(self: Any, *given: Any) -> Any:
        if name not in vars(self).get(_TEXTS, ()):
            return plain(self, *given)
        return str(inside(vars(self)[_THERE]).answer("op", name, *given))

    return tell
