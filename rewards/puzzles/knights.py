"""Provides the verifier and the reward for knights and knaves, which read statements such as "Zoey is a knave"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from grpo.plugins._pattern import lazy_pattern
from grpo.plugins.decorators import reward, verifier
from grpo.plugins.errors import OptionError
from grpo.plugins.types import Case, Verdict
from grpo.rewards.answer_text import shortened, text_answer
from grpo.rewards.math.answer import MARKUP

_HEADERS = ("Assistant:", "<|im_start|>assistant")
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_WHO = lazy_pattern(r"\b([A-Za-z]+)\b")
_ROLE = lazy_pattern(r"\b(knight|knave)\b", re.IGNORECASE)


def logic_rl_score(text: str, solution: str) -> float:
    """Computes Logic-RL's published score: 1 or -1 for the layout, and 2 for a right answer, -1.5 for a wrong one.

    An unreadable, missing or ill laid out answer gets -2. `text`: prompt and completion; it is read after the first
    header, and without one there is no answer. `solution`: one line a person, "(1) Zoey is a knave".
    """
    header = next((known for known in _HEADERS if known in text), None)
    written = text if header is None else text.partition(header)[2]
    if not _laid_out(written):
        return -3.0
    answer = written.partition("<answer>")[2].partition("</answer>")[0].strip() if header else ""
    gold = _solution(solution)
    roles = _roles(answer, list(gold))
    if not roles:
        return -1.0
    return 3.0 if roles == gold else -0.5


def _laid_out(text: str) -> bool:
    if any(text.count(tag) != 1 for tag in _TAGS):
        return False
    at = [text.index(tag) for tag in _TAGS]
    return at == sorted(at)


def _solution(text: str) -> dict[str, str]:
    roles = {}
    for line in text.split("\n"):
        who = _WHO.search(line)
        role = _ROLE.search(line, who.end()) if who else None
        if who and role:
            roles[who[1]] = role[1].lower()
    return roles


def _roles(answer: str, names: list[str]) -> dict[str, str] | None:
    """None when a name is missing or the roles are more, or fewer, than names."""
    lowered = answer.lower()
    if lowered.count("knight") + lowered.count("knave") != len(names):
        return None
    roles = {}
    for name in names:
        match = re.search(rf"\b{re.escape(name)}\b\s+is\s+a\s+(knight|knave)\b", answer, re.IGNORECASE)
        if match is None:
            return None
        roles[name] = match[1].lower()
    return roles


Role = Literal["knight", "knave"]
Variant = Literal["exact", "logic_rl"]

_LONGEST = 4000
_MOST_LINES = 40
_TEXT = "solution_text_format"
_ROLES: Mapping[str, Role] = {"knight": "knight", "true": "knight", "knave": "knave", "false": "knave"}
_NAME = r"(?!(?:and|are|is|both|all|knights?|knaves?)\b)[^\W\d_][\w'-]{0,40}"
_NAMES = rf"{_NAME}(?:\s{{0,3}}(?:,\s{{0,3}}and\b|,|&|\band\b)\s{{0,3}}{_NAME}){{0,30}}"
_STATEMENT = lazy_pattern(
    rf"(?P<names>{_NAMES})\s{{0,3}}(?:\b(?:is|are)\b|[:=(|]|->|\u2192|-|\u2013)\s{{0,3}}"
    rf"(?:(?:a|an|the|both|all)\s{{1,3}})?(?P<role>knight|knave)s?\b",
    re.IGNORECASE,
)
_LISTED = lazy_pattern(rf"\b(?P<role>knight|knave)s?\s{{0,3}}(?:are|is|:)\s{{0,3}}(?P<names>{_NAMES})", re.IGNORECASE)
_BETWEEN = lazy_pattern(
    r"(?:[\s.,;:()\[\]*_#>`|-]|\(?\d{1,2}[.):]|\b(?:and|so|thus|hence|therefore|while|but|then|finally)\b"
    r"|\b(?:the\s)?(?:final\s)?(?:answer|solution)(?:\sis)?:)*",
    re.IGNORECASE,
)
_DRESSING = lazy_pattern(r"[*\"{}$\u201c\u201d]")  # emphasis, and what JSON and LaTeX put around names and roles
_SPLIT = lazy_pattern(r"\s*(?:,\s*and\b|,|&|\band\b)\s*", re.IGNORECASE)
_GOLD = "(1) Amelia is a knight\n(2) Zoey is a knave"
_ROW = {"answer": _GOLD}
_TAGGED = f"<think>Zoey lies.</think>\n<answer>\n{_GOLD}\n</answer>"


class Unreadable(ValueError):
    """The text is no list of statements about who is what; the message says why."""


@verifier(
    version=2,
    isolation="inline",
    cases=[
        Case(_TAGGED, _ROW, True),
        Case("<answer>Zoey is a knave, and Amelia is a knight.</answer>", _ROW, True),
        Case("Zoey lies.\nSo Amelia: knight, Zoey: knave.", {"answer": {"Amelia": "knight", "Zoey": "knave"}}, True),
        Case("<answer>Knights: Amelia; knaves: Zoey</answer>", {"answer": {"Amelia": True, "Zoey": False}}, True),
        Case("<answer>Amelia and Zoey are knights</answer>", _ROW, False),
        Case("<answer>Amelia is a knight</answer>", _ROW, False),
        Case("<answer>Zoey is a knave or Zoey is a knight, Amelia is a knight</answer>", _ROW, False),
        Case("I cannot tell.", _ROW, False),
        Case(_TAGGED, {"answer": "unknown"}, None),
    ],
)
def knights_and_knaves(completion: str, answer: str) -> Verdict:
    """Judges whether a completion says of everybody, and of nobody else, what they are.

    Read is the last `<answer>`, `<SOLUTION>` or `\\boxed{}` after the reasoning, else the last line with those right
    above it that are statements too. It must be made of statements alone, in any order and with or without numbering
    and emphasis: "Zoey is a knave", "Zoey: knave", "Zoey (knave)", "Zoey and Sam are knaves", "Knaves: Zoey, Sam".
    Names are single words and count whatever their case. Any other words beside the
    statements ("or", "maybe", a second version) make it wrong. Undecided only when the row is unusable.

    Args:
        completion: the text.
        answer: the solution: such statements, or a mapping from names to "knight" or "knave" (or True and False);
            a mapping with the key `solution_text_format` is read for that key.
    """
    return _judged(completion, answer)[0]


def prepare(*, format_score: float, **_others: object) -> None:
    """Refuses options that cannot work. Raises OptionError: format_score is not from 0 to 1."""
    if not 0.0 <= format_score <= 1.0:
        raise OptionError(
            f"knights_and_knaves: format_score={format_score} is not from 0 to 1, the range of the reward."
        )


@reward(
    name="knights_and_knaves",
    version=2,
    as_published=["variant"],
    range=(-3.0, 3.0),
    isolation="inline",
    prepare=prepare,
    cases=[
        Case(_TAGGED, _ROW, 1.0),
        Case("<answer>Zoey is a knave, and Amelia is a knight.</answer>", _ROW, 1.0),
        Case("<answer>Zoey is a knight, and Amelia is a knight.</answer>", _ROW, 0.1),
        Case("<answer>Amelia is a knight</answer>", _ROW, 0.0),
        Case("I cannot tell.", _ROW, 0.0),
        Case(_TAGGED, {"answer": ""}, None),
        Case("Assistant: " + _TAGGED, _ROW, 3.0, {"variant": "logic_rl"}),
        Case(_TAGGED, _ROW, 3.0, {"variant": "logic_rl", "header": "Assistant:"}),
        Case("Assistant: " + _TAGGED.replace("knave", "knight"), _ROW, -0.5, {"variant": "logic_rl"}),
        Case("Assistant: " + _TAGGED.replace(" is a ", ": "), _ROW, -1.0, {"variant": "logic_rl"}),
        Case("Assistant: " + _GOLD, _ROW, -3.0, {"variant": "logic_rl"}),
    ],
)
def knights_and_knaves_score(
    completion: str, answer: str, *, format_score: float = 0.1, variant: Variant = "exact", header: str = ""
) -> float | None:
    """1 when the verifier `knights_and_knaves` finds the answer right, `format_score` when it is complete, else 0.

    Args:
        completion: the text.
        answer: the solution, as for the verifier.
        format_score: for an answer that is wrong and yet says of everybody, and of nobody else, what they are; 0 to 1.
        variant: "exact" as above, or "logic_rl": Logic-RL's score as published, 1 for the layout of `<think>` and
            `<answer>` (else -1), plus 2 for the right answer, -1.5 for a wrong one and -2 for one that it cannot read.
            It reads "NAME is a ROLE" alone, and nothing when the words knight and knave occur more often than names.
        header: put before the completion; logic_rl finds no answer without the words that end its prompt
            ("Assistant:" or "<|im_start|>assistant").
    """
    if variant == "logic_rl":
        text = _gold_text(answer)
        return None if text is None else logic_rl_score(header + completion, text)
    verdict, complete = _judged(completion, answer)
    if verdict.ok is None:
        return None
    return 1.0 if verdict.ok else format_score * complete


def read_roles(text: str) -> dict[str, Role]:
    """Reads statements about who is what; returns name in lower case to role.

    Raises Unreadable if there is something else in the text, nothing at all, or two roles for one name.
    """
    if len(text) > _LONGEST:
        raise Unreadable(f"longer than {_LONGEST} characters")
    text = _DRESSING.sub("", MARKUP.sub(r"\1", text))
    roles: dict[str, Role] = {}
    at = 0
    while (start := _gap(text, at)) < len(text):
        match = _STATEMENT.match(text, start) or _LISTED.match(text, start)
        if match is None:
            raise Unreadable(f"'{text[start : start + 40]}' says of nobody what they are")
        role: Role = "knight" if match["role"].lower() == "knight" else "knave"
        for name in _SPLIT.split(match["names"]):
            if roles.setdefault(name.lower(), role) != role:
                raise Unreadable(f"{name} cannot be both")
        at = match.end()
    if not roles:
        raise Unreadable("nobody is called a knight or a knave")
    return roles


def _gap(text: str, start: int) -> int:
    match = _BETWEEN.match(text, start)
    return match.end() if match else start


def _judged(completion: str, answer: object) -> tuple[Verdict, bool]:
    gold = _gold(answer)
    if gold is None:
        return Verdict(None, None, "the row's answer does not say who is a knight and who is a knave"), False
    stated = text_answer(completion)
    if stated is None:
        return Verdict(False, None, "the completion is blank"), False
    stated = _list_above(completion.rstrip(), stated)
    extracted = shortened(stated)
    try:
        roles = read_roles(stated)
    except Unreadable as error:
        return Verdict(False, extracted, str(error)), False
    if roles.keys() != gold.keys():
        return Verdict(False, extracted, f"it is about {_list(roles)}, and the puzzle about {_list(gold)}"), False
    wrong = {name: role for name, role in roles.items() if gold[name] != role}
    if wrong:
        return Verdict(False, extracted, f"{_list(wrong)}: wrong"), True
    return Verdict(True, extracted, "right about everybody"), True


def _list_above(completion: str, stated: str) -> str:
    """The last line with the lines right above that are statements too and contradict nothing below."""
    if not completion.endswith(stated):
        return stated
    above = completion[: len(completion) - len(stated)].rsplit("\n", _MOST_LINES)[1:]
    for line in reversed(above[:-1] if above and not above[-1].strip() else above):
        try:
            read_roles(line)
            read_roles(f"{line}\n{stated}")
        except Unreadable:
            break
        stated = f"{line}\n{stated}"
    return stated


def _gold(answer: object) -> dict[str, Role] | None:
    if isinstance(answer, Mapping) and _TEXT not in answer:
        return _gold_of(answer)
    try:
        return read_roles(_gold_text(answer) or "")
    except Unreadable:
        return None


def _gold_text(answer: object) -> str | None:
    if isinstance(answer, Mapping):
        if _TEXT in answer:
            return _gold_text(answer[_TEXT])
        roles = _gold_of(answer)
        return None if roles is None else "\n".join(f"{name} is a {role}" for name, role in roles.items())
    return answer if isinstance(answer, str) else None


def _gold_of(answer: Mapping[object, object]) -> dict[str, Role] | None:
    """Names without a role (tables fill them in) are not part of the puzzle."""
    roles: dict[str, Role] = {}
    for name, role in answer.items():
        text = str(role).strip().lower()
        if role is None:
            continue
        if text not in _ROLES:
            return None
        roles[str(name).lower()] = _ROLES[text]
    return roles or None


def _list(names: Mapping[str, Role]) -> str:
    return shortened(", ".join(name.title() for name in names))
