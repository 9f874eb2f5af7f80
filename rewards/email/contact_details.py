"""Finds phone numbers, mailboxes and postal addresses in a signature.

The shapes are loose, but a placeholder ("[Your phone]", "XXX-XXXX") has none of them. Linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from grpo.plugins._pattern import lazy_pattern

_PHONE = lazy_pattern(r"(?<![\w@.+-])\+?\(?\d[\d ().\u00a0/-]{5,28}\d(?![\w@])")
_HYPHENS = str.maketrans(
    dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212\uff0d", "-") | {"\uff08": "(", "\uff09": ")"}
)
_DATE = lazy_pattern(
    r"(?<![\d./-])(?:\d{4}[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./](?:\d{4}|\d{2}))(?![-./]?\d)"
)
_ZIP_PLUS_FOUR = lazy_pattern(r"\d{5}-\d{4}")
_DIGITS = range(7, 16)  # E.164 allows 15; shorter than 7 is an extension or a house number
_MAILBOX = lazy_pattern(r"[\w.+%'&-]{1,64}@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}")
_ANYBODY = lazy_pattern(
    r"(?:your|my|the)?[._-]?(?:e-?mail|name|user(?:name)?|address)(?:[._-]?address)?@|your[._-]?\w*@|[^@]*@your"
)
_AROUND = "<>()[]{},;:\"'|.!*_`"
_STREETS = (
    "street|st|road|rd|avenue|ave|av|lane|ln|drive|dr|boulevard|blvd|way|square|sq|court|ct|place|pl|terrace|ter|"
    "highway|hwy|parkway|pkwy|close|crescent|quay|row|mews|alley|plaza|circle|cir|trail|route|"
    "rue|allée|chemin|via|viale|piazza|corso|calle|avenida|paseo|rua|plein|laan|gatan|vej|gade"
)
_STREET = lazy_pattern(rf"\b(?:{_STREETS})\b", re.IGNORECASE)
_COMPOUND_STREET = lazy_pattern(
    r"[^\W\d_]{2,40}(?:straße|strasse|str\.|weg|platz|gasse|allee|ufer|straat|weg|laan|gatan|vägen|gata|vej)(?!\w)",
    re.IGNORECASE,
)
_HOUSE = lazy_pattern(r"(?<![\d,.+(@-])\d{1,5}[A-Za-z]?(?![\w@]|[.,]\d)")
_BOX = lazy_pattern(r"\b(?:p\.?\s?o\.?\s?box|postfach|b\.?p\.?)\s{0,2}\d", re.IGNORECASE)
_CITY = lazy_pattern(
    r"[^\W\d_]{2},? \d{5}(?:-\d{4})?(?!\w)"  # Springfield, IL 62704
    r"|(?<![\w.)/-])(?<!\d )(?:[A-Z]{1,2}-)?\d{4,5} (?:[A-Z]{2} )?[^\W\d_]{3}"  # 10115 Berlin, 1012 LG Amsterdam
    r"|(?<!\w)\d{2}-\d{3} [^\W\d_]{3}"  # 00-001 Warszawa
    r"|\d\s?[\u53f7\u865f]|\u4e01\u76ee|\u756a\u5730|\u3012"  # East Asian house and postal numbers
    r"|(?<!\w)[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}(?!\w)"  # SW1A 1AA
    r"|(?<!\w)[A-Z]\d[A-Z] ?\d[A-Z]\d(?!\w)"  # K1A 0B1
)


def phones(lines: Sequence[str]) -> list[str]:
    """Returns the digits of each phone number; dates, ZIP+4 codes and 123-456-7890 are none."""
    numbers = []
    for line in lines:
        for match in _PHONE.finditer(line.translate(_HYPHENS)):
            text = match[0].strip(" .-/")
            if _DATE.search(text) or _ZIP_PLUS_FOUR.fullmatch(text):
                continue
            digits = "".join(character for character in text if character.isdigit())
            if len(digits) in _DIGITS and not _is_made_up(digits):
                numbers.append(digits)
    return numbers


def _is_made_up(digits: str) -> bool:
    """Whether digits only stand for a number: 123-456-7890, 555-555-5555, 000 0000."""
    own = digits[-10:] if len(digits) > 10 else digits
    return len(set(own)) == 1 or own in "12345678901234567890" or own in "0123456789" * 2


def mailboxes(lines: Sequence[str]) -> list[str]:
    """Returns the e-mail addresses, in lower case, but for placeholders (your.name@example.com)."""
    words = (word.strip(_AROUND) for line in lines for word in re.split(r"[\s|,;<>()[\]]", line) if "@" in word)
    addresses = (word.rpartition(":")[2] for word in words)
    valid = [address.lower() for address in addresses if len(address) <= 254 and _MAILBOX.fullmatch(address)]
    return [address for address in valid if not _ANYBODY.match(address)]


def has_postal_address(lines: Sequence[str]) -> bool:
    """Returns whether a line names a street with a house number, a post-office box, or a postcode with its place."""
    return any(_BOX.search(line) or _CITY.search(line) or _is_street(line) for line in lines)


def _is_street(line: str) -> bool:
    return bool(_HOUSE.search(line)) and bool(_STREET.search(line) or _COMPOUND_STREET.search(line))
