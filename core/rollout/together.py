"""Makes what happens to sampling on one process happen to the run: all ranks share one outcome.

A process that goes on alone would wait for the others where nobody comes. So whoever met an error says so, and all of
them end with it, or repeat together what an engine lost.
"""

from __future__ import annotations

from grpo.core.processes.group import gathered
from grpo.core.processes.rank import rank
from grpo.core.rollout.sync.fault import SyncFault
from grpo.plugins.errors import RunError


def faulty_anywhere(error: Exception | None, what: str) -> bool:
    """Returns whether an engine of any process lost its weights; each process has to call this.

    Args:
        what: was done, as in "waited for ...".

    Raises:
        Exception: the error of this process, or that of another one, where it is another than a `SyncFault`.
    """
    outcomes = gathered((isinstance(error, SyncFault), None if error is None else _message(error)), what)
    fatal = [text for fault, text in outcomes if text is not None and not fault]
    if error is not None and not isinstance(error, SyncFault):
        raise error
    if fatal:
        raise RunError(fatal[0])
    return any(fault for fault, _ in outcomes)


def end_together(error: Exception | None, what: str) -> None:
    """Ends the run on every process where it has to end on one; each process has to call this.

    Raises:
        Exception: the error of this process, or that of another one.
    """
    texts = [text for text in gathered(None if error is None else _message(error), what) if text is not None]
    if error is not None:
        raise error
    if texts:
        raise RunError(texts[0])


def _message(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, RunError) else f"{type(error).__name__} in process {rank()}: {text}"
