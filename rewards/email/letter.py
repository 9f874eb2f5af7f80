"""Splits an e-mail into greeting, text and signature block.

The signature block is what follows the sign-off ("Kind regards,") or a line "--"; without either, what follows the last
paragraph that opens with a few words and a comma, or a drawn line; without those the last paragraph, unless it is the
only one. Linear in the text, of which the first 200,000 characters after the reasoning are read.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from grpo.plugins._pattern import lazy_pattern
from grpo.rewards.answer_text import reasoning_end, visible

_READ = 200_000
_BLOCK = lazy_pattern(r"<(answer|solution|email)>", re.IGNORECASE)
_HEADER = lazy_pattern(r"\W{0,2}(?:subject|to|from|cc|bcc|date|reply-to)\W{0,2}:", re.IGNORECASE)
_GREETING_END = lazy_pattern(r"[,:;!.\u2013\u2014\uff0c\uff1a\uff01](?:\s|$)|\s[-\u2013\u2014]\s|$")
_SIGN_OFFS = (
    "all the best|best|best regards|best wishes|cheers|cordially|kind regards|kindest regards|many thanks|regards|"
    "respectfully|respectfully yours|sincerely|sincerely yours|take care|thank you|thanks|thanks again|"
    "thank you again|thanks and regards|warm regards|warm wishes|warmly|warmest regards|with appreciation|"
    "with best regards|with best wishes|with gratitude|with kind regards|with thanks|with warm regards|"
    "yours|yours faithfully|yours sincerely|yours truly|very truly yours|faithfully|kindly|"
    "thanks in advance|thank you in advance|talk soon|"
    "mit freundlichen grüßen|mit freundlichem gruß|beste grüße|viele grüße|herzliche grüße|mfg|lg|"
    "cordialement|bien cordialement|bien à vous|saludos|saludos cordiales|atentamente|un saludo|un cordial saludo|"
    "cordiali saluti|distinti saluti|atenciosamente|met vriendelijke groet|met vriendelijke groeten|"
    "med vänliga hälsningar|med venlig hilsen|z poważaniem|"
    "\u0441 \u0443\u0432\u0430\u0436\u0435\u043d\u0438\u0435\u043c"
)
_SIGN_OFF = lazy_pattern(
    rf"(?:{_SIGN_OFFS})(?:,? (?:and|&|\+|und|et) (?:{_SIGN_OFFS}))?(?: from(?: [^\s,.!]{{1,40}}){{1,4}})?"
    r"(?:[,.!\u2013\u2014-]{1,2}(?:\s\S{1,40}){0,4})?",
    re.IGNORECASE,
)
_RULE = lazy_pattern(r"-{3,}|_{3,}|\u2013|\u2014")
_CLOSING = lazy_pattern(r"[^\W\d_][^\d,.?!:;]{0,40},")
_EMPHASIS = "*_~ "
_HAIL = lazy_pattern(
    r"(?:hi|hello|hey|hallo|hola|bonjour|ciao|hej|good (?:morning|afternoon|evening|day)|greetings|guten tag"
    r"|\u0437\u0434\u0440\u0430\u0432\u0441\u0442\u0432\u0443\u0439\u0442\u0435)"
    r"(?: there| again)?[,!.\u2013\u2014-]?\s+",
    re.IGNORECASE,
)
_ANOTHER = lazy_pattern(r"[,;]\s*(?=(?:dear|liebe[rs]?|sehr geehrte[rs]?|chère?s?|estimad[oa]s?)\s)", re.IGNORECASE)
_LONGEST_LINE = 80
_SIGNATURE_LINES = 12
_TITLE = lazy_pattern(
    r"\b(Dr|Mr|Mrs|Ms|Prof|St|Jr|Sr|Capt|Col|Gen|Lt|Rev|Hon|Dott|Sig|Ing|[^\W\d_])\.", re.IGNORECASE
)  # a dot that ends no greeting


@dataclass(frozen=True, slots=True)
class Letter:
    text: str  # all of it, without header lines ("Subject: ..."), NFC, with LF as line end and no blank space around
    greeting: str  # the start of its first line up to its punctuation ("Dear Dr Meyer", "Hello, Anna")
    signature: tuple[str, ...]  # the lines of its signature block that are not blank, stripped; at most twelve


def read_letter(completion: str) -> Letter:
    text = visible(_without_reasoning(completion)[:_READ]).replace("\r\n", "\n").replace("\r", "\n")
    lines = unicodedata.normalize("NFC", text).strip().split("\n")
    first = 0
    while first < len(lines) and (not lines[first].strip() or _HEADER.match(lines[first].lstrip())):
        first += 1
    lines = [line.rstrip() for line in lines[first:]]
    opening = _TITLE.sub(r"\1", lines[0].strip()[:_READ]) if lines else ""
    return Letter("\n".join(lines).strip(), _greeting(opening), _signature(lines))


def _greeting(opening: str) -> str:
    """The first line up to its punctuation, except that after "Hello" alone or between two greetings."""
    hail = _HAIL.match(opening)
    end = _end(opening, hail.end() if hail else 0)
    while another := _ANOTHER.match(opening, end):
        end = _end(opening, another.end())
    return opening[:end]


def _end(opening: str, start: int) -> int:
    match = _GREETING_END.search(opening, start)
    return match.start() if match else len(opening)


def _without_reasoning(completion: str) -> str:
    text = completion[reasoning_end(completion) :]
    blocks = list(_BLOCK.finditer(text))
    if not blocks:
        return text
    start = blocks[-1].end()
    end = text.lower().find(f"</{blocks[-1][1].lower()}>", start)
    return text[start : end if end >= 0 else len(text)]


def _signature(lines: list[str]) -> tuple[str, ...]:
    start = _last(lines, _closes)
    if start is None:
        start = _last(
            lines, lambda line: _CLOSING.fullmatch(line) is not None and line.count(" ") < 6, after_blank=True
        )
    if start is None:
        start = _last(lines, lambda line: _RULE.fullmatch(line) is not None)
    if start is None:
        start = _last(lines, lambda line: not line)
    if start is None:
        return ()
    kept = [line.strip() for line in lines[start + 1 :] if line.strip()]
    return tuple(kept[:_SIGNATURE_LINES])


def _last(lines: list[str], wanted: Callable[[str], bool], *, after_blank: bool = False) -> int | None:
    """The index of the last wanted line, also in emphasis; `after_blank`: one that opens a paragraph."""
    for index in range(len(lines) - 1, -1, -1):
        if (wanted(lines[index].strip()) or wanted(lines[index].strip(_EMPHASIS))) and (
            not after_blank or (index > 0 and not lines[index - 1].strip())
        ):
            return index
    return None


def _closes(line: str) -> bool:
    return line == "--" or (len(line) <= _LONGEST_LINE and _SIGN_OFF.fullmatch(line) is not None)
