"""Compares definitions of functions, whatever the argument is called: `f(t) = 2t+1` is `f(x) = 2x+1`.

`y = 2x+1`, `a_k = 2k`, `f\\colon x \\mapsto 2x+1` and `f(x) = \\pm x`, which is two functions, are definitions too.
Others compare the bodies.
"""

from __future__ import annotations

from dataclasses import dataclass

from grpo.plugins._pattern import lazy_pattern

_LONGEST = 400
_DEFINITION = lazy_pattern(
    r"\s*\$?\s*(?:(?P<name>\\?[a-zA-Z]+(?:_\{?\w{1,3}\}?)?)\s*)?"
    r"(?:(?:\\left)?\(\s*(?P<of>[a-zA-Z])\s*(?:\\right)?\)\s*=|_\s?\{?(?P<at>[a-zA-Z])\}?\s*=|(?:(?::|\\colon)\s*)?(?P<from>[a-zA-Z])\s*(?:\\mapsto|\\longmapsto|\u21a6))"
    r"(?P<body>[^=]{1,300})"
)
_CURVE = lazy_pattern(r"\s*\$?\s*(?P<name>[a-zA-Z])\s*=(?P<body>[^=]{1,300})")
_AND = lazy_pattern(
    r"\s*(?:,\s*(?:and|or)\b|[,;]|\b(?:and|or)\b|\\text\s?\{\s*,?\s*(?:and|or)\s*\}|\\q?quad(?![a-z]))"
    r"(?:\\[ ,;:]|\s)*(?=\$?\s*\\?[a-zA-Z]+\s*(?:\\left)?[(:])"
)
_COMMAND = lazy_pattern(r"(\\[a-zA-Z]+)")


@dataclass(frozen=True, slots=True)
class _Definition:
    name: str
    argument: str
    bodies: tuple[str, ...]


def same_argument(gold: str, text: str) -> tuple[str, str] | None:
    """Returns the bodies of two definitions, that of the answer with the gold's argument; several are a set.

    None where the functions' names differ, or the answer has the gold's argument as another letter.
    """
    wanted, given = _read(gold), _read(text)
    if wanted is None and given is not None:
        wanted = _curve(gold, given)
    elif given is None and wanted is not None:
        given = _curve(text, wanted)
    if wanted is None or given is None or (wanted.name and given.name and wanted.name != given.name):
        return None
    bodies = given.bodies
    if wanted.argument != given.argument:
        if any(wanted.argument in _letters(body) for body in bodies):
            return None
        bodies = tuple(_renamed(body, given.argument, wanted.argument) for body in bodies)
    return _together(wanted.bodies), _together(bodies)


def _read(text: str) -> _Definition | None:
    if len(text) > _LONGEST:
        return None
    matches = [_DEFINITION.fullmatch(piece) for piece in _AND.split(text.strip().strip("$"))]
    read = [match for match in matches if match is not None]
    names = {(match["name"] or "", match["of"] or match["at"] or match["from"]) for match in read}
    if len(read) < len(matches) or len(names) != 1:
        return None
    [(name, argument)] = names
    bodies = [match["body"].strip().strip("$").strip() for match in read]
    doubled = [signed for body in bodies for signed in _signs(body)]
    return _Definition(name, argument, tuple(doubled))


def _curve(text: str, function: _Definition) -> _Definition | None:
    """Reads `y = 2x+1` as a definition beside that of a function of x, of which it is the graph."""
    match = _CURVE.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    letters = _letters(match["body"])
    if match["name"] in letters | {function.argument} or function.argument not in letters:
        return None
    return _Definition("", function.argument, tuple(_signs(match["body"].strip().strip("$").strip())))


def _signs(body: str) -> list[str]:
    if not body.startswith("\\pm"):
        return [body]
    return [body[3:].strip(), f"-({body[3:].strip()})"]


def _letters(body: str) -> set[str]:
    return {letter for piece in _COMMAND.split(body)[::2] for letter in piece if letter.isalpha()}


def _renamed(body: str, old: str, new: str) -> str:
    pieces = _COMMAND.split(body)
    pieces[::2] = [piece.replace(old, new) for piece in pieces[::2]]
    return "".join(pieces)


def _together(bodies: tuple[str, ...]) -> str:
    return bodies[0] if len(bodies) == 1 else rf"\{{{','.join(bodies)}\}}"
