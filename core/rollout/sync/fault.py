"""Defines the error of a failed weight sync, and shares a failure of one process with all.

A sync is repeated once before the error is raised. A process that goes on alone would wait for the others where nobody
comes: so whoever met an error says so, and all of them end with it, or repeat together what an engine lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from grpo.core.processes.group import gathered
from grpo.core.processes.rank import rank
from grpo.plugins.errors import GrpoError, RunError

SHOWN = 5  # names in a message


class SyncFault(RunError):
    """The engine does not serve what it was handed; `names` are the parameters that are known to differ."""

    def __init__(self, what: str, names: Sequence[str]) -> None:
        self.names = tuple(names)
        super().__init__(f"{what}: {listed(self.names)}" if names else what)


class EngineLost(SyncFault):
    """The engine went away; whatever stands in its place has other weights."""

    def __init__(self, what: str) -> None:
        super().__init__(what, [])


@contextmanager
def naming_failures(what: str) -> Iterator[None]:
    """Turns an engine's own failure during a transfer into a fault that says what that was."""
    try:
        yield
    except GrpoError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise SyncFault(f"handing {what} over ended in {type(error).__name__}: {reason}", []) from error


def listed(names: Sequence[str]) -> str:
    """Writes the first few names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def faulty_anywhere(error: Exception | None, what: str) -> bool:
    """Returns whether any process's engine lost its weights, or raises its error of another kind. Collective."""
    outcomes = gathered((isinstance(error, SyncFault), None if error is None else _message(error)), what)
    fatal = [text for fault, text in outcomes if text is not None and not fault]
    if error is not None and not isinstance(error, SyncFault):
        raise error
    if fatal:
        raise RunError(fatal[0])
    return any(fault for fault, _ in outcomes)


def end_together(error: Exception | None, what: str) -> None:
    """Ends the run on every process where it has to end on one; each process has to call this. Raises Exception."""
    texts = [text for text in gathered(None if error is None else _message(error), what) if text is not None]
    if error is not None:
        raise error
    if texts:
        raise RunError(texts[0])


def _message(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, RunError) else f"{type(error).__name__} in process {rank()}: {text}"
