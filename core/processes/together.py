"""Ends all processes of a run alike when one of them fails, with one message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from grpo.core.processes.group import ApartError, connect, watched
from grpo.core.processes.rank import count, rank
from grpo.core.processes.watch import End, Kind, PeerEnded
from grpo.plugins.errors import GrpoError, RunError, UsageError

INTERRUPTED = 130
EARLY = 60.0  # seconds to find the others in, before the settings are known
# What torch says where a collective broke; its type is RuntimeError, or one that its builds do not share.
BROKEN = re.compile(r"gloo|nccl|ProcessGroup|Connection (closed|reset)|pair closure|Broken pipe|c10d", re.IGNORECASE)


class Silenced(SystemExit):
    """This process ends, and another one tells why."""

    code: int  # the exit code


@contextmanager
def together() -> Iterator[None]:
    """Ends all processes when the block ends with an error on one of them, of which one tells. Raises RunError."""
    if count() == 1:
        yield
        return
    try:
        yield
    except Silenced:
        raise
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code in (0, None):
            raise
        _end(error)


def _end(error: BaseException) -> NoReturn:
    watch = watched()
    if watch is None:
        if isinstance(error, ApartError):
            raise error
        connect(EARLY)  # others may have failed alike, and one is to tell
        watch = watched()
        assert watch is not None
    if watch.over:  # it was reported, and passes by on its way out
        raise error
    end = error.end if isinstance(error, PeerEnded) else watch.report(_end_of(error))
    watch.unwound()
    if end.teller != rank():
        raise Silenced(end.code) from None
    if end.kind == "stopped":
        raise KeyboardInterrupt from None
    if end.kind != "error":
        raise RunError(end.why) from None
    if rank() > 0 and isinstance(error, GrpoError):
        error.args = (f"process {rank()} of {count()}: {error}",)
    raise error


def _end_of(error: BaseException) -> End:
    broken = isinstance(error, ApartError) or (isinstance(error, RuntimeError) and BROKEN.search(str(error)))
    if broken and not isinstance(error, ApartError):
        why = f"the processes lost each other in the middle of a step: {str(error).splitlines()[0]}."
    else:
        why = str(error) if isinstance(error, GrpoError) else f"{type(error).__name__}: {error}"
    wrong = isinstance(error, UsageError) or hasattr(error, "exit_code")  # the one, or click's
    code = INTERRUPTED if isinstance(error, KeyboardInterrupt) else 2 if wrong else 1
    kind: Kind = "follows" if broken else "stopped" if code == INTERRUPTED else "error"
    return End(rank=rank(), code=code, why=why, kind=kind, teller=rank())
