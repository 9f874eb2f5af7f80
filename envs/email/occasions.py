"""Generates e-mail tasks: an occasion, what the e-mail must contain, and an ideal e-mail.

Mailboxes are in the reserved domain `example`, telephone numbers in ranges that are set aside for fiction.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from grpo.envs.datasets.draws import Draws
from grpo.envs.text.single_turn import Asked
from grpo.plugins.errors import DatasetError, with_article


def _names(text: str, separator: str | None = None) -> tuple[str, ...]:
    return tuple(text.split(separator))


_FIRST = _names(
    "Anna Ben Clara David Elena Felix Grace Henry Iris Jonas Karin Liam Maria Noah Olga Paul Ruth Simon Tara Victor"
)
_LAST = _names(
    "Abbott Baker Carter Dawson Ellis Fischer Grant Hughes Ivers Jansen Keller Lopez Meyer Novak Olsen Price"
)
_STREETS = _names(
    "Mill Lane;Station Road;Park Avenue;High Street;Garden Close;River Road;Chapel Street;Orchard Lane", ";"
)
_TOWNS = _names("Leeds Bath Durham Exeter Norwich Oxford Ripon Truro Wells York")
_DAYS = _names("Monday Tuesday Wednesday Thursday Friday Saturday")
_SIGN_OFFS = ("Kind regards", "Best regards", "Best wishes", "Many thanks")


@cache
def _occasions() -> Sequence[Mapping[str, Any]]:
    occasions: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["occasions"]
    return occasions


def draw_occasion(draws: Draws) -> dict[str, Any]:
    """Returns a row: `question`, the columns that the rubric `email` reads, and `letter`, the ideal e-mail."""
    occasion = draws.pick(_occasions())
    days = list(_DAYS)
    facts = {"n": str(draws.whole(100, 9999)), "day": draws.take(days), "other": draws.take(days)}
    task = occasion["task"].format(**facts)
    recipient = f"{draws.pick(_FIRST)} {draws.pick(_LAST)}"
    first, last = draws.pick(_FIRST), draws.pick(_LAST)
    address = f"{draws.whole(1, 99)} {draws.pick(_STREETS)}, {draws.pick(_TOWNS)}"
    phone = f"+44 113 496 0{draws.whole(100, 999)}"
    email = f"{first}.{last}@{draws.pick(('office', 'post', 'team'))}.example".lower()
    opening = f"Dear {recipient.partition(' ')[0]},"
    closing = f"{draws.pick(_SIGN_OFFS)},\n{first} {last}\n{address}\n{phone}\n{email}"
    return {
        "question": (
            f"Write a short e-mail to {recipient}. Tell them that {task}. Greet them by name. "
            f"Sign as {first} {last}, with the address {address}, the phone number {phone} and the e-mail address "
            f"{email}."
        ),
        "keywords": [keyword.format(**facts) for keyword in occasion["keywords"]],
        "recipient": recipient,
        "phone": phone,
        "email": email,
        "address": address,
        "letter": f"{opening}\n\n{occasion['text'].format(**facts)}\n\n{closing}",
    }


def read_occasion(row: object, where: str, *, question: str = "question", ideal: bool = False) -> dict[str, Any]:
    """Checks a row; missing columns of the rubric `email` become null, so that these parts abstain."""
    if not isinstance(row, Mapping):
        raise DatasetError(f"{where}: a row is an object with columns, found {with_article(type(row).__name__)}.")
    name = question if question in row else "question"
    task = row.get(name)
    if not isinstance(task, str) or not task.strip():
        have = ", ".join(map(str, row)) or "none"
        raise DatasetError(
            f"{where}: the column '{question}' must hold the task as text; the row has: {have}. Name it with "
            "question=COLUMN."
        )
    answer = row.get("answer") or (row.get("letter") if ideal else None)
    wanted = {"keywords": row.get("keywords"), "recipient": row.get("recipient"), "answer": answer}
    return {**{str(column): value for column, value in row.items()}, **wanted, "question": task}


def ask_for_letter(row: object, where: str, system: str, *, question: str, ideal: bool) -> Asked:
    """Returns what the episode of a row shows; its ideal e-mail is the demonstration. Raises DatasetError."""
    read = read_occasion(row, where, question=question, ideal=ideal)
    letter = read.get("letter") or read["answer"]
    return Asked(read["question"], read, system, letter if isinstance(letter, str) else "")
