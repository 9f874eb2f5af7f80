"""Joins a program that is spread over several blocks into one source text.

An answer in steps gives the imports in one block, a helper in the next and the function asked for in the last. What the
chosen block calls and does not define is looked for in the others, from the nearest before it on; blocks found so are
put in front, each run on its own, so that one that fails spoils nothing. Blocks that read input are left out, and
imports that a program needs none of are not looked for. Nothing is parsed: an untrusted text is only searched, in
linear time.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence

from grpo.rewards.code.guest.customs import NAMES

_DEFINED = re.compile(
    r"^(?:async[ \t]+)?(?:def|class)[ \t]+([^\W\d]\w*)|^([A-Z][A-Z0-9_]*)[ \t]*(?::[^=\n]*)?=(?!=)", re.M
)
_IMPORTED = re.compile(r"^(?:from[ \t]+[\w.]+[ \t]+)?import[ \t]+\(?([\w.,* \t]+)", re.MULTILINE)
_BOUND = re.compile(
    r"\b(?:def|class|as|for|lambda|global|nonlocal)[ \t]+([^\W\d]\w*)|([^\W\d]\w*)[ \t]*(?::[^=\n]*)?=(?!=)"
)
_FUTURE = re.compile(r"^from[ \t]+__future__[ \t]+import[^\n]*\n?", re.MULTILINE)
_READING = re.compile(r"^(?![#\s]|def\b|class\b)[^\n]*\b(?:input|stdin)\b", re.MULTILINE)
_NAME = re.compile(r"(?<![\w.])[^\W\d]\w*")
_MOST_BLOCKS, _LONGEST = 12, 60_000


def with_parts(chosen: str, blocks: Sequence[str]) -> str:
    """Returns a program with the parts of it that stand in other blocks.

    Args:
        chosen: the block that defines what is asked for; one that is set in continues a prompt and stays as it is.
        blocks: all blocks of the completion that may be code, in order, `chosen` among them.
    """
    if (
        not 1 < len(blocks) <= _MOST_BLOCKS
        or sum(map(len, blocks)) > _LONGEST
        or chosen.lstrip("\n")[:1] in (" ", "\t")
    ):
        return chosen
    at = max(place for place, block in enumerate(blocks) if block == chosen)
    offers = {
        place: _offered(block) for place, block in enumerate(blocks) if block != chosen and not _READING.search(block)
    }
    nearest = [*range(at - 1, -1, -1), *range(at + 1, len(blocks))]
    missing, taken = _missing(chosen), list[int]()
    have = _bound(chosen)
    while True:
        place = next((n for n in nearest if n in offers and n not in taken and offers[n] & (missing - have)), None)
        if place is None:
            break
        taken.append(place)
        have |= offers[place]
        missing |= _missing(blocks[place])
    if not taken:
        return chosen
    first = "".join(_FUTURE.findall(chosen))
    return first + "".join(f"{_run(blocks[place])}\n" for place in sorted(taken)) + _FUTURE.sub("", chosen)


def _run(block: str) -> str:
    """A statement that runs a block in the globals of the program, whatever comes of it."""
    return f"try:\n    exec({block!a}, globals())\nexcept Exception:\n    pass"


def _offered(block: str) -> set[str]:
    """The functions, classes, constants and modules that a block defines."""
    names = {name for match in _DEFINED.finditer(block) for name in match.groups() if name}
    for match in _IMPORTED.finditer(block):
        imported = {part.split()[-1].split(".")[0] for part in match[1].split(",") if part.strip(" \t*")}
        names |= imported - NAMES.keys()
    return names - vars(builtins).keys()


def _bound(program: str) -> set[str]:
    """The names that a program gives a value anywhere."""
    names = {name for match in _BOUND.finditer(program) for name in match.groups() if name}
    return names | _offered(program)


def _missing(program: str) -> set[str]:
    """The names that a program mentions; comments and texts are mentioned too."""
    return set(_NAME.findall(program)) - _bound(program)
