"""The parts of an e-mail: a completion in, its greeting, text and signature block out.

Reasoning in front of the e-mail is left out. The signature block is what follows the sign-off ("Kind regards,") or a
line "--"; without either it is the last paragraph, unless that is the only one. Everything is linear in the text, of
which the first 200,000 characters after the reasoning are read.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

_READ = 200_000
_REASONING_ENDS = ("</think>", "</thinking>", "</reasoning>", "<end_working_out>")
_BLOCK = re.compile(r"<(answer|solution|email)>", re.IGNORECASE)
_HEADER = re.compile(r"\W{0,2}(?:subject|to|from|cc|bcc|date|reply-to)\W{0,2}:", re.IGNORECASE)
_GREETING_END = re.compile(r"[,:;!.\u2013\u2014\uff0c\uff1a\uff01](?:\s|$)|\s[-\u2013\u2014]\s|$")
_SIGN_OFFS = (
    "all the best|best|best regards|best wishes|cheers|cordially|kind regards|kindest regards|many thanks|regards|"
    "respectfully|respectfully yours|sincerely|sincerely yours|take care|thank you|thanks|thanks again|"
    "thank you again|thanks and regards|warm regards|warm wishes|warmly|warmest regards|with appreciation|"
    "with best regards|with best wishes|with gratitude|with kind regards|with thanks|with warm regards|"
    "yours|yours faithfully|yours sincerely|yours truly|"
    "mit freundlichen grüßen|mit freundlichem gruß|beste grüße|viele grüße|herzliche grüße|"
    "cordialement|bien cordialement|saludos|atentamente|un saludo|cordiali saluti"
)
_SIGN_OFF = re.compile(rf"(?:{_SIGN_OFFS})(?:[,.!\u2013\u2014-]{{1,2}}(?:\s\S{{1,40}}){{0,4}})?", re.IGNORECASE)
_LONGEST_LINE = 80
_SIGNATURE_LINES = 12
_TITLE = re.compile(r"\b(Dr|Mr|Mrs|Ms|Prof|St|Jr|Sr|[^\W\d_])\.", re.IGNORECASE)  # a dot that ends no greeting


@dataclass(frozen=True, slots=True)
class Letter:
    """An e-mail.

    Attributes:
        text: all of it, without header lines ("Subject: ..."), NFC, with LF as line end and no blank space around.
        greeting: the start of its first line up to the first punctuation ("Dear Dr Meyer").
        signature: the lines of its signature block that are not blank, stripped; at most twelve.
    """

    text: str
    greeting: str
    signature: tuple[str, ...]


def read_letter(completion: str) -> Letter:
    """Takes an e-mail apart."""
    text = _without_reasoning(completion)[:_READ].replace("\r\n", "\n").replace("\r", "\n")
    lines = unicodedata.normalize("NFC", text).strip().split("\n")
    first = 0
    while first < len(lines) and (not lines[first].strip() or _HEADER.match(lines[first].lstrip())):
        first += 1
    lines = [line.rstrip() for line in lines[first:]]
    opening = _TITLE.sub(r"\1", lines[0].strip()[:_READ]) if lines else ""
    end = _GREETING_END.search(opening)
    greeting = opening[: end.start()] if end else opening
    return Letter("\n".join(lines).strip(), greeting, _signature(lines))


def _without_reasoning(completion: str) -> str:
    split = max((completion.rfind(end) + len(end) for end in _REASONING_ENDS if end in completion), default=0)
    text = completion[split:]
    blocks = list(_BLOCK.finditer(text))
    if not blocks:
        return text
    start = blocks[-1].end()
    end = text.lower().find(f"</{blocks[-1][1].lower()}>", start)
    return text[start : end if end >= 0 else len(text)]


def _signature(lines: list[str]) -> tuple[str, ...]:
    start = next((i for i in range(len(lines) - 1, -1, -1) if _closes(lines[i].strip())), None)
    if start is None:
        start = next((i for i in range(len(lines) - 1, 0, -1) if not lines[i].strip()), None)
        if start is None:
            return ()
    kept = [line.strip() for line in lines[start + 1 :] if line.strip()]
    return tuple(kept[:_SIGNATURE_LINES])


def _closes(line: str) -> bool:
    """Returns whether a line is a sign-off or the delimiter of a signature."""
    return line == "--" or (len(line) <= _LONGEST_LINE and _SIGN_OFF.fullmatch(line) is not None)
