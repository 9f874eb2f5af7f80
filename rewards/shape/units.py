"""Splits a completion into the units in which lengths are counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from grpo.plugins.types import Completion

Unit = Literal["words", "characters", "tokens"]


def pieces(completion: Completion | str, unit: Unit) -> Sequence[str] | Sequence[int] | None:
    """Returns the pieces of a completion in order, or None for tokens where only the text is known.

    `unit`: words (runs without blank space, in lower case), characters, or the ids of the sampled tokens.
    """
    text = completion if isinstance(completion, str) else completion.text
    if unit == "words":
        return text.lower().split()
    if unit == "characters":
        return text
    ids: tuple[int, ...] = () if isinstance(completion, str) else completion.token_ids
    return None if text and not ids else ids


def size(completion: Completion | str, unit: Unit) -> int | None:
    """Returns how many pieces there are, or None for tokens where only the text is known."""
    units = pieces(completion, unit)
    return None if units is None else len(units)
