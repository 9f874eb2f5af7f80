"""Joins a program from several blocks into one source text, and cuts off text behind the program.

An answer in steps may give imports, helpers and the function asked for in different blocks. What the chosen block calls
and does not define is looked for in the others, from the nearest before it on; blocks found so are put in front, each
run on its own, so that one that fails spoils nothing. Blocks that read input are left out. Nothing is parsed: an
untrusted text is only searched, in linear time.

What continues a prompt has no fence at its start, and may go on after the function with prints, other functions, prose
or the next question. A section, from one unindented line to the next, is kept if it stands before the end of what is
asked for, gives a name a value, defines a name that the rest mentions, is decorated by what the rest defines, or does
something with it (fills a table, sets a limit).
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
_FENCE_END = re.compile(r"^[ \t]*```[ \t]*$", re.MULTILINE)
_ANY_FENCE = re.compile(r"^[ \t]*```", re.MULTILINE)
_LANGUAGE = re.compile(r"\s*(?:python3?|py)[ \t]*\n", re.IGNORECASE)
_CODE = re.compile(
    r"\s*\n?(?:[ \t]+\S|@\w|#|(?:async[ \t]+)?def[ \t]+\w|class[ \t]+\w|import[ \t]+\w|from[ \t]+[\w.]+[ \t]+import\b"
    r"|(?:for|while|if|with|try)\b[^\n]*:[ \t]*$|[\w.,\[\] \t*]+=(?!=)|print\()",
    re.MULTILINE,
)
_SECTION = re.compile(r"^(?![ \t\n#)\]}]|(?:else|elif|except|finally)\b)", re.MULTILINE)
_DEFINES = re.compile(r"(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)|(?:from[ \t]+\S+[ \t]+)?import[ \t]+([^\n]+)")
_FILLS = re.compile(  # a loop, or a call for what it does: a table is filled, a limit set
    r"(?:for\b[^\n]*\bin\b[^\n]*:|(?:while|with|if(?![ \t]+__name__)|try)\b[^\n]*:[ \t]*$"
    r"|(?!print\(|assert\b)[\w.]+\([^\n]*\)[ \t]*$)",
    re.MULTILINE,
)
_DEFINITION = re.compile(r"^(?:async[ \t]+)?(?:def|class)[ \t]", re.MULTILINE)
_GIVES = re.compile(r"[\w.\[\]'\", \t]+(?::[^=\n]{1,80})?(?:[-+*/|&]?=)(?!=)")
_MOST_SECTIONS = 400
_WORD = re.compile(r"[^\W\d]\w*")
_MOST_BLOCKS, _LONGEST = 12, 60_000


def with_parts(chosen: str, blocks: Sequence[str]) -> str:
    """Returns a program with the parts of it that stand in other blocks.

    `chosen`: the block that defines what is asked for; an indented one continues a prompt and stays as it is. `blocks`:
    all blocks of the completion that may be code, in order, `chosen` among them.
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
    return f"try:\n    exec({block!a}, globals())\nexcept Exception:\n    pass"


def _offered(block: str) -> set[str]:
    names = {name for match in _DEFINED.finditer(block) for name in match.groups() if name}
    for match in _IMPORTED.finditer(block):
        imported = {part.split()[-1].split(".")[0] for part in match[1].split(",") if part.strip(" \t*")}
        names |= imported - NAMES.keys()
    return names - vars(builtins).keys()


def _bound(program: str) -> set[str]:
    names = {name for match in _BOUND.finditer(program) for name in match.groups() if name}
    return names | _offered(program)


def _missing(program: str) -> set[str]:
    """The names that a program mentions, also in comments and texts."""
    return set(_NAME.findall(program)) - _bound(program)


def opened_by_prompt(text: str) -> str | None:
    """Returns the program before the end of a fence that the prompt opened; None where the text opens its own."""
    fence = _FENCE_END.search(text)
    if fence is None or len(_ANY_FENCE.findall(text)) % 2 == 0:
        return None
    head = text[: fence.start()]
    language = _LANGUAGE.match(head)
    head = head[language.end() :] if language else head
    return head if "```" not in head and _CODE.match(head) else None


def without_tail(program: str, wanted: tuple[str, ...]) -> str:
    """Returns a program without the sections behind what is asked for that nothing needs.

    `program`: a text without fences. `wanted`: the names asked for; a text that begins indented continues the last of
    them.
    """
    starts = [match.start() for match in _SECTION.finditer(program)]
    if not wanted or not starts or len(starts) > _MOST_SECTIONS:
        return program
    starts = [start for at, start in enumerate(starts) if at == 0 or program[starts[at - 1]] != "@"]  # decorated
    sections = [program[start:end] for start, end in zip(starts, [*starts[1:], len(program)], strict=True)]
    if program.lstrip("\n")[:1] in (" ", "\t"):
        sections.insert(0, program[: starts[0]])
        last = 0
    else:
        sections[0] = program[: starts[0]] + sections[0]
        last = max(
            (at for at, section in enumerate(sections) if set(_named_in(section)) & {*wanted, "Solution"}), default=-1
        )
    if last < 0:
        return program
    kept = set(range(last + 1)) | {at for at, section in enumerate(sections) if _GIVES.match(section)}
    mentioned = {name for at in kept for name in _WORD.findall(sections[at])}
    defined = {name for at in kept for name in (*_named_in(sections[at]), *_assigned(sections[at]))}
    waiting = [at for at in range(last + 1, len(sections)) if at not in kept]
    while needed := [
        at
        for at in waiting
        if mentioned & set(_named_in(sections[at])) - {*wanted}
        or defined & {*_WORD.findall(_decorators(sections[at]))}
        or (_FILLS.match(sections[at]) and (defined - {*wanted}) & {*_WORD.findall(sections[at])})
        or sections[at].startswith(tuple(f"{name}." for name in wanted))
    ]:
        kept.update(needed)
        mentioned |= {name for at in needed for name in _WORD.findall(sections[at])}
        defined |= {name for at in needed for name in _named_in(sections[at])}
        waiting = [at for at in waiting if at not in needed]
    return "".join(section for at, section in enumerate(sections) if at in kept)


def _decorators(section: str) -> str:
    match = _DEFINITION.search(section) if section.startswith("@") else None
    return "" if match is None else section[: match.start()]


def _assigned(section: str) -> list[str]:
    match = _GIVES.match(section)
    return [] if match is None else _WORD.findall(match[0])


def _named_in(section: str) -> list[str]:
    match = _DEFINES.match(section, len(_decorators(section)))
    return [] if match is None else [match[1]] if match[1] else _WORD.findall(match[2])
