"""What failed in a test, whoever saw it: exceptions as they pass in, whether the test may still pass out.

Theory of operation. An exception of the tests that leaves an assertion, or a block that leads to one, is a failure. The
tests may catch it themselves. On its way it may pass through the solution: out of a function of the tests that the
solution called. If it does not come out of the call of the solution in which that happened, the solution has kept it to
itself, and the test has failed whatever follows. What a `raise` of the tests made is theirs to give away, but for an
`AssertionError` that says something.

This module runs inside sandboxes and needs the standard library alone.
"""

from __future__ import annotations

from typing import Any


class Guard:
    """Notes what leaves a block of the tests; for use in a `with` statement."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures

    def __enter__(self) -> None:
        """Begins the block."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._failures.left(error)


class Failures:
    """The failures of one unit of the tests.

    Attributes:
        kept: a failure that the solution kept to itself, or None.
        guard: notes what leaves a block that leads to an assertion.
    """

    def __init__(self) -> None:
        self.kept: BaseException | None = None
        self.guard = Guard(self)
        self._failed: list[BaseException] = []
        self._deliberate: list[BaseException] = []
        self._passing: list[BaseException] = []
        self._outer: list[BaseException | None] = []

    def begin(self) -> None:
        """Begins a unit, perhaps inside another. What was kept outside of all units counts for the next one."""
        if not self._outer:
            self._failed, self._deliberate, self._passing = [], [], []
        self._outer.append(self.kept if self._outer else None)
        self.kept = None if len(self._outer) > 1 else self.kept

    def end(self) -> None:
        """Ends it."""
        self.kept = self._outer.pop()

    def left(self, error: BaseException | None) -> None:
        """Notes what leaves an assertion, or a block that leads to one."""
        given_away = any(error is one for one in self._deliberate)
        if error is not None and not given_away and not self.failed(error):
            self._failed.append(error)

    def deliberate(self, error: Any) -> Any:
        """Returns what a `raise` of the tests raises, and notes it."""
        if isinstance(error, type) and issubclass(error, BaseException):
            error = error()
        if isinstance(error, BaseException):
            says = isinstance(error, AssertionError) and error.args
            (self._failed if says else self._deliberate).append(error)
        return error

    def failed(self, error: BaseException | None) -> bool:
        """Returns whether that is a failure, which the solution may not make undone."""
        return any(error is one for one in self._failed)

    def mark(self) -> int:
        """Begins a call of the solution; returns what `returned` asks for."""
        return len(self._passing)

    def entered(self, error: BaseException) -> None:
        """Notes an exception that a function of the tests gave to the solution that called it."""
        self._passing.append(error)

    def returned(self, mark: int, raised: BaseException | None) -> None:
        """Ends a call of the solution: a failure that went in and no failure out again has been kept."""
        passed, self._passing[mark:] = self._passing[mark:], []
        failures = [error for error in passed if self.failed(error)]
        if failures and not any(raised is error for error in failures):
            self.kept = self.kept or failures[0]

    def given(self, mark: int, place: Any) -> BaseException | None:
        """Returns the exception that went in as the one of that place during a call of the solution."""
        known = type(place) is int and mark <= place < len(self._passing)
        return self._passing[place] if known else None

    @property
    def last(self) -> int:
        """The place of the exception that went in last."""
        return len(self._passing) - 1
