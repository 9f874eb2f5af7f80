"""Shows on a terminal's standard error what is being done, and how much of it is done."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status


class StatusLine:
    """A line that says what is being done, while it is used as a context manager and standard error is a terminal."""

    def __init__(self, what: str) -> None:
        self._status: Status | None = None
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True).status(what)

    def __enter__(self) -> StatusLine:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._status is not None:
            self._status.stop()

    def begins(self, what: str) -> None:
        if self._status is not None:
            self._status.update(what)


class ProgressBar:
    """A bar that shows while it is used as a context manager and standard error is a terminal; silent otherwise."""

    def __init__(self, total: int | None, what: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task(what, total=total)

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._progress.stop()

    def begins(self, what: str) -> None:
        self._progress.update(self._task, description=what)

    def advanced(self, count: int) -> None:
        self._progress.advance(self._task, count)

    def reached(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)
