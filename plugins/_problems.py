"""What is wrong with an installed plugin, as one line for people and a traceback for its author.

In: an exception or a finding about one entry point. Out: a `Problem`; the other plugins go on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["broken", "contract", "misspelt", "invalid", "clash", "observer"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with one entry point.

    Attributes:
        state: "broken" (import or a hook raised), "contract" (the package was written for another contract), "misspelt"
            (a hook that nothing calls), "invalid" (a hook returned something that is no usable spec), "clash" (another
            distribution offers the name too), "observer" (`grpo_observe` raised).
        distribution: the distribution that declares the entry point.
        distribution_version: its version.
        entry_point: the name in the entry-point group.
        line: what happened, in one line.
        traceback: the traceback as text, "" when nothing was raised.
        plugin: the plugin that it is about, where that is known, as "reward:proximity"; otherwise "".
    """

    state: State
    distribution: str
    distribution_version: str
    entry_point: str
    line: str
    traceback: str = ""
    plugin: str = ""


def one_line(error: BaseException) -> str:
    """Returns "ImportError: no module named 'x' (at my_rewards/__init__.py:3)"."""
    import traceback
    from pathlib import Path

    ours = Path(__file__).resolve().parent
    try:
        message = str(error)
    except Exception:
        message = "(its message cannot be printed)"
    text = "".join(mark if mark.isprintable() else "?" for mark in " ".join(message.split())) or "(no message)"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    if isinstance(error, SyntaxError) or not frames:
        return f"{type(error).__name__}: {text}"
    theirs = [frame for frame in frames if Path(frame.filename).resolve().parent != ours]
    frame = (theirs or frames)[-1]  # where the contract refuses something, the line that asked for it
    place = Path(frame.filename)
    return f"{type(error).__name__}: {text} (at {place.parent.name}/{place.name}:{frame.lineno})"


def traceback_text(error: BaseException) -> str:
    """Returns the whole traceback with its causes."""
    import traceback

    return "".join(traceback.format_exception(error))
