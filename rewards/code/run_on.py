"""Cuts what a base model writes behind its program: text that ran on, or the end of a fence that the prompt opened.

What continues a prompt has no fence at its start, and goes on after the function with prints, other functions, prose or
the next question, cut off anywhere. A section of it, from one line that is not set in to the next, stays where it
stands before the end of what is asked for, gives a name a value, defines a name that the rest mentions, is decorated by
what the rest defines, or does something with it (fills a table, sets a limit). The text is only searched, in linear
time.
"""

from __future__ import annotations

import re

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
_ASSIGNS = re.compile(r"[\w.\[\]'\", \t]+(?::[^=\n]{1,80})?(?:[-+*/|&]?=)(?!=)")
_NAME = re.compile(r"[^\W\d]\w*")
_MOST = 400


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

    Args:
        program: a text without fences.
        wanted: the names asked for; a text that begins set in continues the last of them.
    """
    starts = [match.start() for match in _SECTION.finditer(program)]
    if not wanted or not starts or len(starts) > _MOST:
        return program
    starts = [start for at, start in enumerate(starts) if at == 0 or program[starts[at - 1]] != "@"]  # decorated
    sections = [program[start:end] for start, end in zip(starts, [*starts[1:], len(program)], strict=True)]
    if program.lstrip("\n")[:1] in (" ", "\t"):
        sections.insert(0, program[: starts[0]])
        last = 0
    else:
        sections[0] = program[: starts[0]] + sections[0]
        last = max(
            (at for at, section in enumerate(sections) if set(_defined(section)) & {*wanted, "Solution"}), default=-1
        )
    if last < 0:
        return program
    kept = set(range(last + 1)) | {at for at, section in enumerate(sections) if _ASSIGNS.match(section)}
    mentioned = {name for at in kept for name in _NAME.findall(sections[at])}
    defined = {name for at in kept for name in (*_defined(sections[at]), *_assigned(sections[at]))}
    waiting = [at for at in range(last + 1, len(sections)) if at not in kept]
    while needed := [
        at
        for at in waiting
        if mentioned & set(_defined(sections[at])) - {*wanted}
        or defined & {*_NAME.findall(_decorators(sections[at]))}
        or (_FILLS.match(sections[at]) and (defined - {*wanted}) & {*_NAME.findall(sections[at])})
        or sections[at].startswith(tuple(f"{name}." for name in wanted))
    ]:
        kept.update(needed)
        mentioned |= {name for at in needed for name in _NAME.findall(sections[at])}
        defined |= {name for at in needed for name in _defined(sections[at])}
        waiting = [at for at in waiting if at not in needed]
    return "".join(section for at, section in enumerate(sections) if at in kept)


def _decorators(section: str) -> str:
    """Returns what stands before the definition of a decorated section; "" of any other."""
    match = _DEFINITION.search(section) if section.startswith("@") else None
    return "" if match is None else section[: match.start()]


def _assigned(section: str) -> list[str]:
    match = _ASSIGNS.match(section)
    return [] if match is None else _NAME.findall(match[0])


def _defined(section: str) -> list[str]:
    match = _DEFINES.match(section, len(_decorators(section)))
    return [] if match is None else [match[1]] if match[1] else _NAME.findall(match[2])
