"""Re-implements Logic-RL's published score for knights and knaves from a description."""

from __future__ import annotations

import re

from grpo.plugins._pattern import lazy_pattern

_HEADERS = ("Assistant:", "<|im_start|>assistant")
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_WHO = lazy_pattern(r"\b([A-Za-z]+)\b")
_ROLE = lazy_pattern(r"\b(knight|knave)\b", re.IGNORECASE)


def logic_rl_score(text: str, solution: str) -> float:
    """Scores the layout (1 or -1) plus the answer (2, -1.5 when wrong, -2 when unreadable, missing or ill laid out).

    `text`: prompt and completion; what follows the first header is read, all of it when there is none, and then there
    is no answer. `solution`: one line a person, "(1) Zoey is a knave".
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
    """Returns whether each tag occurs once, in order."""
    if any(text.count(tag) != 1 for tag in _TAGS):
        return False
    at = [text.index(tag) for tag in _TAGS]
    return at == sorted(at)


def _solution(text: str) -> dict[str, str]:
    """Reads the first word and the first role after it of each line."""
    roles = {}
    for line in text.split("\n"):
        who = _WHO.search(line)
        role = _ROLE.search(line, who.end()) if who else None
        if who and role:
            roles[who[1]] = role[1].lower()
    return roles


def _roles(answer: str, names: list[str]) -> dict[str, str] | None:
    """Reads "NAME is a ROLE" for every name; None when one is missing or the roles are more, or fewer, than names."""
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
