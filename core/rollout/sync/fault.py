"""Defines the error of a copy of the weights that did not arrive; a sync is repeated once before it is raised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from grpo.plugins.errors import GrpoError, RunError

SHOWN = 5  # names in a message


class SyncFault(RunError):
    """The engine does not serve what it was handed.

    Attributes:
        names: the parameters that are known to differ; empty when only their effect is known.
    """

    def __init__(self, what: str, names: Sequence[str]) -> None:
        self.names = tuple(names)
        super().__init__(f"{what}: {listed(self.names)}" if names else what)


class EngineLost(SyncFault):
    """The engine went away; whatever stands in its place has other weights."""

    def __init__(self, what: str) -> None:
        super().__init__(what, [])


@contextmanager
def naming_failures(what: str) -> Iterator[None]:
    """Turns an engine's own failure while it is handed something over into a fault that says what that was."""
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
