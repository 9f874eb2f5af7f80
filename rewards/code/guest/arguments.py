"""Arguments as a call left them: the tests' own objects and the new values in, the objects changed in place.

What moved within an argument stays the object that it was, so that `is` and later changes mean what they say.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

import io
from collections import deque
from typing import Any

from grpo.rewards.code.guest.values import DEEPEST, attributes

_MOST_MATCHED = 300


def update(old: Any, new: Any, depth: int, classes: frozenset[type], done: set[int]) -> None:
    """Makes a mutable value equal to another of its kind, keeping the identity of what it holds where it can."""
    if type(old) is not type(new) or depth > DEEPEST or old is new or id(old) in done:
        return
    done.add(id(old))
    if issubclass(type(old), list):
        list.__setitem__(old, slice(None), _kept(list(old), list(new), depth, classes, done))
    elif type(old) is tuple:
        for before, after in zip(old, new, strict=False):
            update(before, after, depth + 1, classes, done)
    elif issubclass(type(old), dict):
        entries = dict(
            zip(new, _kept([old.get(key) for key in new], list(new.values()), depth, classes, done), strict=True)
        )
        dict.clear(old)
        dict.update(old, entries)
    elif issubclass(type(old), set):
        set.clear(old)
        set.update(old, new)
    elif issubclass(type(old), bytearray):
        old[:] = new
    elif issubclass(type(old), deque):
        items = _kept(list(old), list(new), depth, classes, done)
        old.clear()
        old.extend(items)
    elif type(old) in (io.StringIO, io.BytesIO):
        old.seek(0)
        old.truncate()
        old.write(new.getvalue())
        old.seek(new.tell())
    elif type(old) in classes:
        held, found = attributes(old) or {}, attributes(new) or {}
        items = _kept([held.get(name) for name in found], list(found.values()), depth, classes, done)
        for name in held.keys() - found.keys():
            object.__delattr__(old, name)
        for name, item in zip(found, items, strict=True):
            object.__setattr__(old, name, item)


def _kept(before: list[Any], after: list[Any], depth: int, classes: frozenset[type], done: set[int]) -> list[Any]:
    """Returns the new items, with the old objects for those that moved, and changed in place for those that did not."""
    mutable = (list, dict, set, bytearray, deque, io.StringIO, io.BytesIO, *classes)
    places = {place for place, item in enumerate(before) if issubclass(type(item), mutable)}
    if not places or len(before) > _MOST_MATCHED:
        return after
    items = list(after)
    left = []
    for place, item in enumerate(after):
        same = next((old for old in (place, *sorted(places)) if old in places and before[old] == item), None)
        if same is not None:
            items[place] = before[same]
            places.discard(same)
        else:
            left.append(place)
    for place in left:
        if place in places and type(before[place]) is type(after[place]):
            update(before[place], after[place], depth + 1, classes, done)
            items[place] = before[place]
    return items
