"""Makes up occasions for an e-mail: a task, what the e-mail must hold and an ideal e-mail.

Mailboxes are in the reserved domain `example`, telephone numbers in ranges that are set aside for fiction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo.envs.datasets.draws import Draws
from grpo.envs.text.single_turn import Asked
from grpo.plugins.errors import DatasetError


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


@dataclass(frozen=True, slots=True)
class _Occasion:
    """What an e-mail is about: `{n}` is a number, `{day}` a day, `{other}` another day."""

    task: str  # what the e-mail has to say, after "Tell them that"
    text: str  # its ideal wording
    keywords: tuple[str, ...]  # what it must hold


_OCCASIONS = (
    _Occasion(
        "the refund of order {n} was sent today and arrives by {day}",
        "We sent the refund of order {n} today. It arrives by {day}.",
        ("refund", "order {n}", "{day}"),
    ),
    _Occasion(
        "the meeting about budget {n} moves from {other} to {day}",
        "The meeting about budget {n} moves from {other} to {day}. I hope that the new day suits you.",
        ("meeting", "budget {n}", "{day}"),
    ),
    _Occasion(
        "invoice {n} is still open, and payment is due on {day}",
        "Invoice {n} is still open. Please note that payment is due on {day}.",
        ("invoice {n}", "payment", "{day}"),
    ),
    _Occasion(
        "parcel {n} is late and will come on {day}",
        "I am sorry that parcel {n} is late. It will come on {day}.",
        ("sorry", "parcel {n}", "{day}"),
    ),
    _Occasion(
        "room {n} is booked for them on {day}",
        "Room {n} is booked for you on {day}. We look forward to your visit.",
        ("room {n}", "booked", "{day}"),
    ),
    _Occasion(
        "their interview for post {n} is on {day}, and they should bring their certificates",
        "Your interview for post {n} is on {day}. Please bring your certificates.",
        ("interview", "post {n}", "{day}", "certificates"),
    ),
    _Occasion(
        "report {n} is finished, and comments are welcome until {day}",
        "Report {n} is finished. Your comments are welcome until {day}.",
        ("report {n}", "comments", "{day}"),
    ),
    _Occasion(
        "the lift at number {n} will be repaired on {day} and not on {other}",
        "The lift at number {n} will be repaired on {day} and not on {other}. Thank you for your patience.",
        ("lift", "number {n}", "repaired", "{day}"),
    ),
    _Occasion(
        "ticket {n} is solved, and they should restart the computer before {day}",
        "Ticket {n} is solved. Please restart your computer before {day}.",
        ("ticket {n}", "restart", "{day}"),
    ),
    _Occasion(
        "course {n} is full, and there is a free place on {day}",
        "I am sorry to say that course {n} is full. There is a free place on {day}.",
        ("course {n}", "free place", "{day}"),
    ),
)


def draw_occasion(draws: Draws) -> dict[str, Any]:
    """Returns a row: `question`, the columns that the rubric `email` reads, and `letter`, the ideal e-mail."""
    occasion = draws.pick(_OCCASIONS)
    days = list(_DAYS)
    facts = {"n": str(draws.whole(100, 9999)), "day": draws.take(days), "other": draws.take(days)}
    recipient = f"{draws.pick(_FIRST)} {draws.pick(_LAST)}"
    first, last = draws.pick(_FIRST), draws.pick(_LAST)
    address = f"{draws.whole(1, 99)} {draws.pick(_STREETS)}, {draws.pick(_TOWNS)}"
    phone = f"+44 113 496 0{draws.whole(100, 999)}"
    email = f"{first}.{last}@{draws.pick(('office', 'post', 'team'))}.example".lower()
    opening = f"Dear {recipient.partition(' ')[0]},"
    closing = f"{draws.pick(_SIGN_OFFS)},\n{first} {last}\n{address}\n{phone}\n{email}"
    return {
        "question": (
            f"Write a short e-mail to {recipient}. Tell them that {occasion.task.format(**facts)}. Greet them by name. "
            f"Sign as {first} {last}, with the address {address}, the phone number {phone} and the e-mail address "
            f"{email}."
        ),
        "keywords": [keyword.format(**facts) for keyword in occasion.keywords],
        "recipient": recipient,
        "phone": phone,
        "email": email,
        "address": address,
        "letter": f"{opening}\n\n{occasion.text.format(**facts)}\n\n{closing}",
    }


def read_occasion(row: object, where: str, *, question: str = "question", ideal: bool = False) -> dict[str, Any]:
    """Checks a row; columns that it lacks and the rubric `email` needs are null, so that these parts abstain."""
    if not isinstance(row, Mapping):
        raise DatasetError(f"{where}: a row is an object with columns, found a {type(row).__name__}.")
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
