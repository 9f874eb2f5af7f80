"""What an object of the solution has said of itself: its answers in, the same answers for all later questions out.

Theory of operation. A test may ask what a function returned for its length, then for its items, then for each item by
its place. Plain data cannot answer such questions differently from one to the next, and an object may not either. So
an answer is kept until the tests do something with the object; items are taken once; and length, items and indexing
must agree.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

MOST_ITEMS = 1_000_000
_ONE_BY_ONE, _ONE_BY_ONE_ONCE = 16, 256

Taken = Callable[[int], tuple[bool, list[Any], Any]]


class Items:
    """The items of an object, taken as far as somebody asked.

    Args:
        take: takes so many more from the solution; returns whether that was the end, the items, and with what it ended.
        once: the object is its own iterator, so that an item that was seen is not seen again.
        again: asks such an object to begin again; returns False for what never does, as a generator.

    Attributes:
        seen: those that were taken.
    """

    def __init__(self, take: Taken, *, once: bool, again: Callable[[], bool] = lambda: False) -> None:
        self._again = again
        self.seen: list[Any] = []
        self.ended = False
        self.value: Any = None
        self._take = take
        self.once = once
        self._next = 0
        self._count = 1

    def __iter__(self) -> Generator[Any, None, Any]:
        if self.once and self.seen and self._again():
            self._begin_again()
        place = 0
        while True:
            place = self._next if self.once else place
            if place >= len(self.seen) and not self._more():
                return self.value
            self._next = place = place + 1
            yield self.seen[place - 1]

    def upto(self, count: int) -> list[Any]:
        """Returns the items, at least so many unless there are fewer."""
        while len(self.seen) < count and self._more():
            pass
        return self.seen

    def _begin_again(self) -> None:
        """Takes what an object that is its own iterator gives when it is iterated over once more.

        Raises:
            TypeError: neither what follows nor what it gave before.
        """
        end, items, _ = self._take(1)
        if items and items[0] == self.seen[0]:
            wanted = len(self.seen) + self.ended
            while not end and len(items) < wanted:
                end, more, _ = self._take(wanted - len(items))
                items.extend(more)
            if items != self.seen:
                raise TypeError("the solution's iterator began again with other items")
            self.once, self.ended = False, end
        elif items and self.ended:
            raise TypeError("the solution's iterator began again with other items")
        else:
            self.seen.extend(items)
            self.ended = self.ended or end

    def _more(self) -> bool:
        """Takes some more: first one by one, as there may be no end, then more at once."""
        if self.ended:
            return False
        if len(self.seen) >= MOST_ITEMS:
            raise TypeError(f"the solution's iterator gave more than {MOST_ITEMS} items")
        self.ended, items, self.value = self._take(self._count)
        self.seen.extend(items)
        if len(self.seen) >= (_ONE_BY_ONE_ONCE if self.once else _ONE_BY_ONE):
            self._count = min(2 * self._count, 1000)
        return bool(items)


class Answers:
    """What one object has said.

    Attributes:
        items: its items, once they were asked for.
    """

    __slots__ = ("_places", "_said", "items")

    def __init__(self) -> None:
        self.items: Items | None = None
        self._said: dict[Any, Any] = {}
        self._places: list[tuple[Any, Any]] = []

    def once(self, kind: str, name: str, given: tuple[Any, ...], ask: Callable[[], Any]) -> Any:
        """Returns the answer to a question, asked at most once; what it raises is not kept."""
        question = (kind, name, *map(_told_apart, given))
        if question not in self._said:
            self._said[question] = ask()
        return self._said[question]

    def length(self, said: int) -> int:
        """Returns how many items there are said to be, if there are so many."""
        if self.items is not None:
            if len(self.items.upto(said + 1)) != said:
                raise TypeError(f"the solution's object has {said} items by its length, and gives another number")
            self.items.once = False
        return said

    def at(self, key: Any, found: Any) -> Any:
        """Returns what is said to be at a place, if items and places agree."""
        if type(key) in (int, slice):
            self._places.append((key, found))
            self.agree()
        return found

    def agree(self) -> None:
        """Checks what is known of the items by their places.

        Raises:
            TypeError: they are others.
        """
        for key, found in self._places:
            if self.items is None:
                return
            seen = self.items.upto(_reach(key))
            if type(key) is slice:
                same = seen[key] == list(found)
            else:
                same = not -len(seen) <= key < len(seen) or seen[key] is found or seen[key] == found
            if not same:
                raise TypeError("the items of the solution's object are not those that it gives by their places")


def _reach(key: Any) -> int:
    """Returns how many items decide what is at a place."""
    parts = (key.start or 0, key.stop) if type(key) is slice else (key, key + 1)
    return max(parts) if all(type(part) is int and part >= 0 for part in parts) else MOST_ITEMS


def _told_apart(value: Any) -> Any:
    """Returns what tells a value in a question from others."""
    if type(value) is slice:
        return (slice, value.start, value.stop, value.step)
    return (type(value), value) if type(value).__module__ == "builtins" else id(value)
