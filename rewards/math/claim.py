"""Finds the clause and formula that state the answer, and whether a text names several answers."""

from __future__ import annotations

import re
from functools import lru_cache

from grpo.plugins._pattern import lazy_pattern
from grpo.rewards.math.answer import Statement, plain

_LONGEST = 400
_FORMULA = lazy_pattern(
    r"\$\$(.{1,2000}?)\$\$|(?<!\\)\$([^$\n]{1,1000})(?<!\\)\$(?!\d)|\\\[(.{1,2000}?)\\\]|\\\((.{1,1000}?)\\\)",
    re.DOTALL,
)
_SENTENCE_END = lazy_pattern(r"(?<=[.!?])\s+(?=[^\W\d_]|\$|\\)")
_EQUALS = lazy_pattern(r"(?<![<>!:\\])=(?!=)|\\approx(?![a-zA-Z])|\u2248|\\equiv(?![a-zA-Z])")
_SPLIT = lazy_pattern(r"[,;]|\\(?:quad|qquad|lor|vee|cup|pm|mp)(?![a-zA-Z])|\u00b1|\b(?:or|and)\b")
_THOUSANDS = lazy_pattern(r"(?<=\d)(?:\{,\}|,\\!|,)(?=\d{3}(?!\d))")
_SET = lazy_pattern(r"(?:\\left)?\\\{.*\\\}|\{.*\}", re.DOTALL)
_SOLUTIONS = lazy_pattern(
    r"[<>\u2264\u2265\u2260\u222a\u221e]|\\(?:leq?|geq?|lt|gt|neq?|leqslant|geqslant|cup|setminus|infty)(?![a-zA-Z])"
    r"|[\[(](?=[^\[\]()]*,)[^\[\]()]+\]|\[(?=[^\[\]()]*,)[^\[\]()]+\)"
)
_FOR_ALL = lazy_pattern(
    r"(?<=[\w$)}\]])(?:\\[,;: ]|\\q?quad(?![a-z])|[\s,])*(?:\\(?:text|mathrm|mbox)\s?\{\s*(?:(?:and|with)\s*\}\s*)?)?"
    r"(?:for\s+(?:all|any|every|each|some)\b|\\forall(?![a-z])|where\b|(?<=[,}\s])\\?[a-zA-Z]\s*\\in(?![a-z])"
    r"|(?:for\s+)?(?<=[,}\s])[a-zA-Z]\s*=(?=\s*-?\d+\s*,[^;=]{0,60}(?:\\[lc]?dots|\u2026|\.\.\.)))"
    r"(?P<of>[^.;\n]{0,80})[.$\s]*\Z",
    re.IGNORECASE,
)
_WORDS = lazy_pattern(r"\\(?:text|mathrm|mbox)\s?\{[^{}]*\}")
_LISTING = lazy_pattern(
    r"(?:\b(?:are|be)\b:?|:|(?P<name>\b[a-zA-Z])(?:_(?:\d|\{\d{1,2}\}))?\s*=)\s*(?=[-\d\\$]|[a-zA-Z]_)"
)
_JOINED = lazy_pattern(r"\s*(?:,\s*(?:and|or)\b|,|;|\b(?:and|or)\b)\s*")
_VALUE = lazy_pattern(
    r"\$?(?:(?P<name>[a-zA-Z])(?:_(?:\d|\{\d{1,2}\}))?\s*=\s*)?"
    r"(?P<value>[-+]?(?:\d+(?:\.\d+)?(?:/\d+)?|[^\s$a-zA-Z\\]*\\[^$]{1,80}?))\$?"
)
_ASSIGNED = lazy_pattern(r"\s*[a-zA-Z]\s*=\s*[-+]?(?:\d[\d.,/]*|\\[dt]?frac\{\d+\}\{\d+\})\s*[.,]?\s*")
_COUNTED = lazy_pattern(
    r"\b(?:is|are|has|have|exactly|only|find|get|gives|yields)\s+(?:exactly\s+|only\s+)?\$?"
    r"(?P<count>\d{1,2}|two|three|four|five|six|seven|eight|nine|ten)\$?(?:\s+[^\W\d_]+){1,4}\s*:\s*(?P<list>[^:]{3,})\Z",
    re.IGNORECASE,
)
_COUNTS = {
    name: str(count)
    for count, name in enumerate(("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), 2)
}
_CASES = lazy_pattern(r"\\begin\{(?:cases|array|aligned)\}")


@lru_cache(maxsize=8)  # several steps ask for the clause of one statement
def claim(prediction: Statement) -> str:
    """Returns the clause of a statement that decides: its marked content, else its first or its last sentence."""
    if prediction.parts:
        return "\n".join(prediction.parts)
    text = prediction.text.strip()
    if prediction.form == "sentence":
        return _SENTENCE_END.split(text.replace("\n", " "), maxsplit=1)[0][:_LONGEST]
    last = list(_FORMULA.finditer(text[-_LONGEST:]))
    if last and last[-1].end() >= len(text[-_LONGEST:].rstrip(". ")):
        start = text.rfind("\n", 0, len(text) - len(text[-_LONGEST:]) + last[-1].start()) + 1
        return _SENTENCE_END.split(text[max(start, len(text) - _LONGEST) :])[-1]
    return _SENTENCE_END.split(text.rsplit("\n", 1)[-1][-_LONGEST:])[-1]


def formulas(text: str) -> list[str]:
    """Returns the formulas of a text that stand between dollar signs or LaTeX brackets, in order."""
    return [next(group for group in match.groups() if group is not None) for match in _FORMULA.finditer(text)]


def formulas_alone(text: str) -> bool:
    """True when a text is formulas between dollar signs and nothing but blanks, commas, "and" and "or"."""
    return not re.sub(r"\b(?:and|or)\b|[\s,;.]", "", _FORMULA.sub(" ", text))


def derived(text: str) -> bool:
    """True for displayed equations in a row, each of which only leads to the last one: "y-3=2x" to "y=2x+3".

    Equations that say what a name is ("x=1", then "x=2", or "y=2") are answers of their own.
    """
    shown = [formula for groups in _FORMULA.findall(text) for formula in (groups[0], groups[2]) if formula]
    if len(shown) != len(formulas(text)) or re.sub(r"[\s.]", "", _FORMULA.sub("", text)):
        return False
    return all(_EQUALS.search(formula) and not _ASSIGNED.fullmatch(formula) for formula in shown[:-1])


def counted_list(clause: str) -> str | None:
    """Returns how many things a clause counts and then lists: "3" of "There are 3 solutions: -1, 0 and 1."."""
    match = _COUNTED.search(clause[-_LONGEST:])
    if match is None:
        return None
    count = _COUNTS.get(match["count"].lower(), match["count"])
    return count if len(_JOINED.split(match["list"].strip(" .$"))) == int(count) else None


def result(text: str) -> str:
    """Returns what a clause comes to: the last formula of it, or all of it, after the last equals sign."""
    delimited = formulas(text)
    text = delimited[-1] if delimited else text
    depth, start = 0, 0
    for match in re.finditer(rf"(?P<brace>[{{}}])|{_EQUALS.pattern}", text):
        if match["brace"]:
            depth = max(0, depth + (1 if match[0] == "{" else -1))
        elif depth == 0:
            start = match.end()
    return text[start:].strip()


def without_quantifier(text: str) -> str:
    """Returns a text without "for all real x" at its end."""
    match = _FOR_ALL.search(text, max(0, len(text) - _LONGEST))
    if match is None:
        return text
    head = text[: match.start()]
    return head + "$" if head.count("$") % 2 else head


def without_quantifiers(gold: str, text: str) -> tuple[str, str]:
    """Returns two formulas without "for all n", ", c \\in \\mathbb{R}" and ", n = 1, 2, \\ldots" at their ends.

    Where these differ, the formulas stay as they are.
    """
    both = [formula.replace("$", "").strip() for formula in (gold, text)]
    matches = [_FOR_ALL.search(formula, max(0, len(formula) - _LONGEST)) for formula in both]
    numbers = [re.findall(r"\d+", match["of"]) if match else None for match in matches]
    heads = [
        formula if match is None else formula[: match.start()] for formula, match in zip(both, matches, strict=True)
    ]
    closed = all(head.count("{") == head.count("}") and _WORDS.sub("", head).strip() for head in heads)
    same = None in numbers or numbers[0] == numbers[1]
    return (heads[0], heads[1]) if any(matches) and closed and same else (gold, text)


def several(gold: str) -> bool:
    """True when a text names several values: a list, a set, a plus-minus; not one number, tuple, interval or matrix."""
    text = gold.strip().strip("$").strip()
    if _SET.fullmatch(text) or _CASES.search(text) or text.count("boxed") > 1 or len(formulas(gold)) > 1:
        return True
    return bool(_SPLIT.search(_outside_brackets(_THOUSANDS.sub("", text))))


def assignments(clause: str) -> str | None:
    """Returns what prose gives several names: `x = 2,y = 3` of "we get $x = 2$ and $y = 3$."; else None."""
    equations = formulas(clause)
    names = [equation.partition("=")[0].strip() for equation in equations]
    if len(names) < 2 or len({*names}) < len(names) or not all(map(_ASSIGNED.fullmatch, equations)):
        return None
    return None if re.search(r"\b(?:or|not)\b", clause) else ",".join(equations)


def listed_values(clause: str) -> str | None:
    """Returns the values that a clause of prose lists, parted by commas; None for a single one, or other words.

    So "the solutions are 1, -2 and $\\frac{1}{2}$." gives `1,-2,\\frac{1}{2}`, and "x = 1 or x = -2" gives `1,-2`.
    """
    start = next(iter(_LISTING.finditer(clause[-_LONGEST:])), None)
    if start is None:
        return None
    text = clause[-_LONGEST:][start.end() :].strip().rstrip(".").strip()
    matches = [_VALUE.fullmatch(part) for part in _JOINED.split(_THOUSANDS.sub("", text))]
    read = [match for match in matches if match is not None]
    names = {start["name"], *(match["name"] for match in read)} - {None}
    if len(read) < max(2, len(matches)) or len(names) > 1:
        return None
    return ",".join(match["value"] for match in read)


def is_set(gold: str) -> bool:
    """True for inequalities, half-open or endless intervals, and set operations on them; "or" may join their parts."""
    return _SOLUTIONS.search(gold) is not None


def groups(text: str) -> frozenset[str] | None:
    """Returns the values that "and", "or" or semicolons part, as plain texts without order; None for a single one.

    So `p=5, q=2 \\text{ and } p=7, q=2` is the same as `p=7,q=2; p=5,q=2`.
    """
    if len(text) > _LONGEST:
        return None
    text = re.sub(r"\\q?quad(?![a-zA-Z])", " ", re.sub(r"\\text\s?\{\s*(and|or)\s*\}", r" \1 ", text))
    parts = [plain(part) for part in re.split(r";|\b(?:and|or)\b", text)]
    return frozenset(parts) if len(parts) > 1 and all(parts) else None


def _outside_brackets(text: str) -> str:
    """The braces of `\\text{}` and `\\boxed{}` are no brackets."""
    text = re.sub(r"\\(?:text|mathrm|boxed|fbox)\s?\{([^{}]*)\}", r" \1 ", text)
    kept, depth = [], 0
    for character in text:
        depth = max(0, depth + (character in "([{") - (character in ")]}"))
        if depth == 0:
            kept.append(character)
    return "".join(kept)
