"""Scores the parts of a good e-mail, with one reward for each.

Each looks at one thing only, so that each shows in the metrics under its own name. They pay for form and named facts;
whether the e-mail says the right thing is for a judge, or for people.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Literal

from grpo.plugins._pattern import lazy_pattern
from grpo.plugins.decorators import reward
from grpo.plugins.errors import OptionError
from grpo.plugins.types import Case
from grpo.rewards.email.contact_details import has_postal_address, mailboxes, phones
from grpo.rewards.email.letter import read_letter
from grpo.rewards.email.person_name import mentions, names, names_only

LETTER = """Subject: Your refund

Dear Ms Meyer,

Thank you for writing. We have sent the refund of order 4417 today; it arrives by Friday.

Kind regards,
Tom Baker
Baker Cycles, 12 Mill Lane, Leeds
+44 113 496 0123
tom@bakercycles.example
"""
_UNSIGNED = "Hi Tom, the refund will arrive by Friday."
_UNSAID = lazy_pattern(
    r"(?:\b(?:not|never|without|refuse|decline|avoid|omit)\b|n['\u2019]t\b)[^.!?\n]{0,40}"
    r"\b(?:mention|includ|contain|discuss|talk|speak|writ|say|word|address|cover)"
    r"|(?:\bnot|\bnever|n['\u2019]t)\s+(?:(?:at\s+all|in\s+any\s+way|really|even)\s+)?"
    r"(?:about|regarding|concerning|related\s+to|referring\s+to)\b",
    re.IGNORECASE,
)
_LISTED = 3
_OTHER_WORD = lazy_pattern(r"(?!(?:and|or|und|et|y)\b)(?:[\u2e80-\u9fff\uac00-\ud7af]|[^\W\d_]+)")
_UNNAMED = lazy_pattern(
    r"[\[<{(]{1,2}\s*(?:(?:your|sender|my|insert|full|first|last|the)['\u2019\w]*\s+){0,3}(?:name|signature)\b[^\])>}\n]{0,40}[\])>}]"
    r"|^\W*your\s+(?:full\s+)?name\W*$",
    re.IGNORECASE,
)
_PLACEHOLDER = lazy_pattern(r"\[[^\[\]\n]*[^\W\d_]{3}[^\[\]\n]*\](?!\()|\{\{[^{}\n]*\}\}")
_MARKS = str.maketrans({"\u2019": "'", **dict.fromkeys("\u2010\u2011\u2012\u2013", "-"), "\u00ad": None})


@reward(
    name="email.keywords",
    version=5,
    range=(0.0, 1.0),
    isolation="inline",
    cases=[
        Case(LETTER, {"keywords": ["refund", "order 4417", "Friday"]}, 1.0),
        Case(_UNSIGNED, {"keywords": ["refund", "order 4417"]}, 0.5),
        Case(_UNSIGNED, {"keywords": ["refund", "order 4417"]}, 0.0, {"partial": False}),
        Case(_UNSIGNED, {"keywords": "order 4417; apology"}, 0.0),
        Case("", {"keywords": ["refund"]}, 0.0),
        Case("Hi Tom, <!-- refund --> see you soon.", {"keywords": ["refund"]}, 0.0),
        Case("Hi Tom, I will not mention a refund here.", {"keywords": ["refund"]}, 0.0),
        Case("Hi Tom, this is not about a refund.", {"keywords": ["refund"]}, 0.0),
        Case("Hi Tom, we offer no refund.", {"keywords": ["refund"]}, 1.0),
        Case("refund, order 4417, Friday", {"keywords": ["refund", "order 4417", "Friday"]}, 0.0),
        Case(LETTER, {"keywords": []}, None),
    ],
)
def keywords(completion: str, keywords: Any, *, partial: bool = True) -> float | None:
    """The share of the required keywords that the e-mail holds, from 0 to 1; abstains when the row requires none.

    A keyword is a word or phrase; it counts as a whole ("refund" is not in "refunded"), in any case and spacing, with
    typewriter's or typographic apostrophes and hyphens. In a comment that no reader sees, in a sentence that says
    what the e-mail does not mention, and in a mere list of three keywords or more, it does not count.

    Args:
        completion: the e-mail.
        keywords: a list of texts, or one text parted by ";" or newlines, or else by ",".
        partial: False pays 1 for all of them and 0 for anything less.
    """
    wanted = _listed(keywords)
    if not wanted:
        return None
    sentences = re.split(r"(?<=[.!?\n])", read_letter(completion).text)
    folded = [_folded(sentence) for sentence in sentences if not _UNSAID.search(sentence)]
    text = " ".join(sentence for sentence in folded if not _is_list(sentence, wanted))
    if _is_list(text, wanted):
        return 0.0
    share = sum(_holds(text, keyword) for keyword in wanted) / len(wanted)
    return share if partial or share == 1.0 else 0.0


@reward(
    name="email.exact",
    version=2,
    range=(0.0, 1.0),
    isolation="inline",
    cases=[
        Case("Hi Tom,\n\nFriday suits me.\n\nAnna", {"answer": "Hi Tom,\n\nFriday suits me.\n\nAnna"}, 1.0),
        Case("Hi Tom,\r\nFriday  suits me.\r\nAnna\r\n", {"answer": "Hi Tom,\n\nFriday suits me.\n\nAnna"}, 1.0),
        Case("hi tom, friday suits me. anna", {"answer": "Hi Tom, Friday suits me. Anna"}, 0.0),
        Case("hi tom, friday suits me. anna", {"answer": "Hi Tom, Friday suits me. Anna"}, 1.0, {"ignore_case": True}),
        Case("", {"answer": "Hi Tom, Friday suits me. Anna"}, 0.0),
        Case(_UNSIGNED, {"answer": ""}, None),
    ],
)
def exact(completion: str, answer: Any, *, ignore_case: bool = False) -> float | None:
    """1 when the e-mail is the ideal one, word by word, else 0; abstains when the row has no ideal e-mail.

    Line ends, the width of blank space and header lines ("Subject: ...") do not count.

    Args:
        completion: the e-mail.
        answer: the ideal e-mail.
        ignore_case: compare without regard to case.
    """
    if not isinstance(answer, str) or not answer.strip():
        return None
    got, wanted = (" ".join(read_letter(text).text.split()) for text in (completion, answer))
    if ignore_case:
        got, wanted = got.casefold(), wanted.casefold()
    return 1.0 if got == wanted else 0.0


@reward(
    name="email.length",
    version=2,
    range=(-1.0, 0.0),
    isolation="inline",
    cases=[
        Case(LETTER, {}, 0.0),
        Case("word " * 201, {}, -1.0),
        Case("word " * 225, {}, -0.5, {"slack": 50}),
        Case("", {}, -1.0),
    ],
)
def length(completion: str, *, limit: int = 200, slack: int = 0) -> float:
    """-1 for an e-mail of more than `limit` words, or of none, else 0.

    Args:
        completion: the e-mail.
        limit: the largest number of words (runs without blank space) that costs nothing.
        slack: from `limit` the score falls in a straight line and is -1 from `limit + slack` words on.

    Raises:
        OptionError: a limit below 1, or a negative slack.
    """
    if limit < 1 or slack < 0:
        raise OptionError(f"email.length: limit={limit}, slack={slack}. Choose limit >= 1 and slack >= 0.")
    words = len(read_letter(completion).text.split())
    if words == 0:
        return -1.0
    over = words - limit
    return -min(1.0, over / slack if slack else 1.0) if over > 0 else 0.0


@reward(
    name="email.recipient",
    version=2,
    range=(0.0, 1.0),
    isolation="inline",
    cases=[
        Case(LETTER, {"recipient": "Sabine Meyer"}, 1.0),
        Case("Hello Dr. O'Neill - thank you.", {"recipient": "Prof. Mary O\u2019Neill"}, 1.0),
        Case("Hi Tom and Sabine,\n\nthe refund is on its way.", {"recipient": "Sabine Meyer"}, 0.0),
        Case("Dear customer,\n\nSabine Meyer's refund is on its way.", {"recipient": "Sabine Meyer"}, 0.0),
        Case("Dear customer,\n\nSabine's refund is sent.", {"recipient": "Sabine Meyer"}, 1.0, {"where": "anywhere"}),
        Case("", {"recipient": "Sabine Meyer"}, 0.0),
        Case(LETTER, {"recipient": ""}, None),
    ],
)
def recipient(completion: str, recipient: Any, *, where: Literal["greeting", "anywhere"] = "greeting") -> float | None:
    """1 when the e-mail is addressed to the recipient by name, else 0; abstains when the row names nobody.

    The first name, the last name or both will do, with or without a title, with or without accents ("Jose", "Mueller"),
    or one part of a name with a hyphen. A greeting that names somebody else too does not count. Names are found in
    scripts that part words by blank space.

    Args:
        completion: the e-mail.
        recipient: the full name.
        where: "greeting" looks at the greeting that opens the first line; "anywhere" at the whole e-mail, where a list
            of names would be paid as well.
    """
    name = str(recipient or "")
    if not names(name):
        return None
    letter = read_letter(completion)
    if where == "anywhere":
        return 1.0 if mentions(letter.text, name) else 0.0
    return 1.0 if names_only(letter.greeting, name) else 0.0


@reward(
    name="email.signature",
    version=3,
    range=(0.0, 1.0),
    isolation="inline",
    cases=[
        Case(LETTER, {}, 1.0),
        Case(LETTER, {"phone": "0113 496 0123", "email": "tom@bakercycles.example"}, 1.0),
        Case(LETTER, {"email": "sales@bakercycles.example"}, 2 / 3),
        Case("Hi Anna,\n\nFriday suits me.\n\nBest,\nTom\ntom@bakercycles.example", {}, 1 / 3),
        Case("Hi Anna,\n\nFriday suits me.\n\nBest,\nTom\ntom@bakercycles.example", {}, 0.0, {"partial": False}),
        Case("Call 0113 496 0123 or write to tom@bakercycles.example.\n\nBest,\nTom", {}, 0.0),
        Case("Best,\nTom\n[Your Phone Number]\n[Your Email]", {}, 0.0),
        Case(LETTER.replace("Tom Baker", "[Your Name]"), {}, 0.0),
        Case("", {}, 0.0),
    ],
)
def signature(
    completion: str, phone: Any = None, email: Any = None, address: Any = None, *, partial: bool = True
) -> float:
    """A third each for a phone number, an e-mail address and a postal address in the signature block.

    The block is what follows the sign-off ("Kind regards,") or a line "--", without either the last paragraph; its
    first twelve lines count. Where the row has the column, its value must stand there; elsewhere any will do that is
    no placeholder ("[Your phone]", "123-456-7890"). A block whose name is a placeholder ("[Your Name]") signs nothing.

    Args:
        completion: the e-mail.
        phone: the sender's number; compared by its last seven digits or more, so that a country code may be added.
        email: the sender's address; case does not count.
        address: the sender's postal address; its words must all stand in the block, in order.
        partial: False pays 1 for all three and 0 for anything less.
    """
    lines = read_letter(completion).signature
    if any(map(_UNNAMED.search, lines)):
        return 0.0
    lines = tuple(_PLACEHOLDER.sub(" ", line) for line in lines)
    parts = (_has_phone(lines, phone), _has_mailbox(lines, email), _has_address(lines, address))
    share = sum(parts) / len(parts)
    return share if partial or all(parts) else 0.0


def _listed(keywords: Any) -> list[str]:
    if isinstance(keywords, str):
        keywords = re.split(r"[;\n]" if re.search(r"[;\n]", keywords) else ",", keywords)
    elif not isinstance(keywords, list | tuple):
        return []
    return list(dict.fromkeys(folded for keyword in keywords if (folded := _folded(str(keyword)))))


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).translate(_MARKS).casefold().split())


def _holds(text: str, keyword: str) -> bool:
    return re.search(_whole(keyword), text) is not None


def _whole(keyword: str) -> str:
    head = r"(?<!\w)" if keyword[0].isalnum() else ""
    tail = r"(?!\w)" if keyword[-1].isalnum() else ""
    return head + re.escape(keyword) + tail


def _is_list(text: str, wanted: list[str]) -> bool:
    """Whether a text holds three keywords or more, and fewer other words than keywords."""
    held = sum(_holds(text, keyword) for keyword in wanted)
    if held < _LISTED:
        return False
    rest = re.sub("|".join(map(_whole, sorted(wanted, key=len, reverse=True))), " ", text)
    return len(_OTHER_WORD.findall(rest)) < held


def _has_phone(lines: tuple[str, ...], wanted: Any) -> bool:
    numbers = phones(lines)
    digits = "".join(character for character in str(wanted or "") if character.isdigit()).lstrip("0")
    if not digits:
        return bool(numbers)
    return any(_same_number(number.lstrip("0"), digits) for number in numbers)


def _same_number(number: str, wanted: str) -> bool:
    shorter, longer = sorted((number, wanted), key=len)
    return number == wanted or (len(shorter) >= 7 and longer.endswith(shorter))


def _has_mailbox(lines: tuple[str, ...], wanted: Any) -> bool:
    addresses = mailboxes(lines)
    return str(wanted).strip().lower() in addresses if wanted else bool(addresses)


def _has_address(lines: tuple[str, ...], wanted: Any) -> bool:
    words = re.findall(r"\w+", _folded(str(wanted or "")))
    if not words:
        return has_postal_address(lines)
    there = iter(re.findall(r"\w+", _folded(" ".join(lines))))
    return all(word in there for word in words)
