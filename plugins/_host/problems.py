"""Describes a problem of an installed plugin: one line for users and a traceback for its author."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from types import TracebackType

_LONGEST = 2000  # characters of a message that are shown in the line
State = Literal["broken", "contract", "misspelt", "invalid", "clash", "observer"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with one entry point."""

    # "broken" (import or a hook raised), "contract" (the package was written for another contract), "misspelt" (a hook
    # that nothing calls), "invalid" (a hook returned something that is no usable spec), "clash" (another distribution
    # offers the name too), "observer" (`grpo_observe` raised)
    state: State
    distribution: str  # the distribution that declares the entry point
    distribution_version: str  # its version
    entry_point: str  # the name in the entry-point group
    line: str  # what happened, in one line
    traceback: str = ""  # the traceback as text, "" when nothing was raised
    plugin: str = ""  # the plugin that it is about, where that is known, as "reward:proximity"; otherwise ""


def one_line(error: BaseException) -> str:
    """Returns "ImportError: no module named 'x' (at my_rewards/__init__.py:3)"."""
    import traceback
    from pathlib import Path

    ours = Path(__file__).resolve().parents[1]
    name = name_of(type(error))
    try:
        message = str.__str__(str(error))[:_LONGEST]
    except BaseException:  # what a plugin raises may itself raise anything
        message = "(its message cannot be printed)"
    text = "".join(mark if mark.isprintable() else "?" for mark in " ".join(message.split())) or "(no message)"
    frames = [frame for frame in traceback.extract_tb(_raised_at(error)) if not frame.filename.startswith("<")]
    if issubclass(type(error), SyntaxError) or not frames:  # `isinstance` would ask the error itself
        return f"{name}: {text}"
    theirs = [frame for frame in frames if not Path(frame.filename).resolve().is_relative_to(ours)]
    frame = (theirs or frames)[-1]  # where the contract refuses something, the line that asked for it
    place = Path(frame.filename)
    return f"{name}: {text} (at {place.parent.name}/{place.name}:{frame.lineno})"


def traceback_text(error: BaseException) -> str:
    """Returns the whole traceback with its causes, as far as they can be printed."""
    import traceback

    try:
        return "".join(traceback.format_exception(error))
    except BaseException:  # see one_line
        stack = "".join(traceback.format_tb(_raised_at(error)))
        return f"Traceback (most recent call last):\n{stack}{one_line(error)}\n"


def name_of(kind: type) -> str:
    """Returns the name of a class, whatever its metaclass says."""
    return str(type.__dict__["__name__"].__get__(kind))


def _raised_at(error: BaseException) -> TracebackType | None:
    trace: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    return trace
