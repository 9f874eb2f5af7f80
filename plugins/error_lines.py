"""Writes what a plugin raised as one line that names the place in its code."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

_LONGEST = 2000  # characters of a message that are shown in the line


def one_line(error: BaseException) -> str:
    """Returns "ImportError: no module named 'x' (at my_rewards/__init__.py:3)"."""
    name = name_of(type(error))
    try:
        message = str.__str__(str(error))[:_LONGEST]
    except BaseException:  # what a plugin raises may itself raise anything
        message = "(its message cannot be printed)"
    text = "".join(mark if mark.isprintable() else "?" for mark in " ".join(message.split())) or "(no message)"
    place = line_that_raised(error)
    return f"{name}: {text} (at {place})" if place else f"{name}: {text}"


def line_that_raised(error: BaseException) -> str:
    """Returns the last line of somebody else's code that an error went through, as "my_rewards/__init__.py:3".

    If all of it is ours or Python's, the line that raised; "" for a syntax error, and for an error that was never
    raised.
    """
    import sysconfig
    import traceback
    from pathlib import Path

    ours, library = Path(__file__).resolve().parent, Path(sysconfig.get_path("stdlib")).resolve()
    frames = [frame for frame in traceback.extract_tb(_raised_at(error)) if not frame.filename.startswith("<")]
    if issubclass(type(error), SyntaxError) or not frames:  # `isinstance` would ask the error itself
        return ""
    files = [Path(frame.filename).resolve() for frame in frames]
    theirs = [
        frame
        for frame, file in zip(frames, files, strict=True)
        if not file.is_relative_to(ours) and (not file.is_relative_to(library) or "site-packages" in file.parts)
    ]
    frame = (theirs or frames)[-1]  # where the contract refuses something, the line that asked for it
    place = Path(frame.filename)
    return f"{place.parent.name}/{place.name}:{frame.lineno}"


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
