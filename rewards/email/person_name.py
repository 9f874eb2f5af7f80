"""Decides whether a greeting names a person and nobody else.

Names are compared without case, with or without accents (José, Jose; Müller, Mueller, Muller), any part of a name with
a hyphen, with or without titles and particles, in scripts that part words by blank space.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from grpo.plugins._pattern import lazy_pattern

_WORD = lazy_pattern(r"[^\W\d_]+(?:['-][^\W\d_]+)*")
_MARKS = str.maketrans({"\u2019": "'", "\u02bc": "'", **dict.fromkeys("\u2010\u2011\u2012\u2013", "-")})
_LETTERS = dict(zip("\u00f8\u0142\u0111\u00f0\u0131", "olddi", strict=True))
_LETTERS |= {"\u00e6": "ae", "\u0153": "oe", "\u00fe": "th", "\u00df": "ss"}
_PLAIN = str.maketrans(_LETTERS)
_GERMAN = str.maketrans({**_LETTERS, "\u00e4": "ae", "\u00f6": "oe", "\u00fc": "ue", "\u00f8": "oe", "\u00e5": "aa"})


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SALUTATIONS = _set(
    "dear dearest hi hello hey hiya greetings good morning afternoon evening day to there again my our welcome "
    "bonjour salut cher chère chers chères hallo moin liebe lieber sehr geehrte geehrter geehrtes guten tag morgen "
    "abend hola buenos buenas días tardes estimado estimada estimados querido querida ciao buongiorno buonasera caro "
    "cara gentile egregio egregia olá oi prezado prezada beste geachte hej hei kära kjære drogi droga szanowny "
    "szanowna уважаемый уважаемая дорогой дорогая здравствуйте привет добрый день αγαπητέ αγαπητή"
)
_TITLES = _set(
    "mr mrs ms miss mx dr prof professor doctor sir madam madame monsieur mme mlle herr herrn frau señor señora srta "
    "sr sra signor signora dott dottore dottoressa phd md esq jr ii iii captain capt colonel lieutenant sergeant"
)
_TITLES_OR_NAMES = _set(
    "m sig ing dipl msc mba col general gen lt major sgt judge justice senator president chancellor minister reverend "
    "rev father fr sister brother pastor rabbi imam lord lady dame hon dom don doña pan pani dhr mevrouw mw"
)
_COMPANY = _set("and & team all everyone colleagues both und et y e")
_PARTICLES = _set("van von vom zu der den de del della di da dos du des la le las los ter ten of the bin ibn al el")


def names(full: str) -> frozenset[str]:
    """Returns the words of a full name that tell a person apart: no titles, no particles, no initials where more."""
    words = _own(full)
    telling = [word for word in words if word not in _PARTICLES and len(word) > 1]
    called = _WORD.search(full)
    if called and len(words) > 1 and called[0][0].isupper() and words[0] in _PARTICLES:  # Al Gore
        telling.append(words[0])
    return frozenset(telling or words)


def names_only(greeting: str, full: str) -> bool:
    """Returns whether a greeting names the person of that full name, by any telling part of it, and nobody else."""
    telling = _spellings(names(full))
    own = telling | _spellings(_own(full))
    initials = {name[0] for name in own}
    passed_over = (_SALUTATIONS | _TITLES | _TITLES_OR_NAMES | _COMPANY) - set(_own(full))  # Dear Cara, dear Don
    called = [word for word in _words(greeting) if word not in passed_over]
    known = [bool(_spellings([word]) & own) or word in initials | _PARTICLES for word in called]
    return all(known) and any(_spellings([word]) & telling for word in called)


def mentions(text: str, full: str) -> bool:
    """Returns whether a text holds a telling part of the full name anywhere."""
    return bool(_spellings(names(full)) & _spellings(word.removesuffix("'s") for word in _words(text)))


def _own(full: str) -> list[str]:
    return [word for word in _words(full) if word not in _TITLES]


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFC", text).translate(_MARKS).casefold())


def _spellings(words: Iterable[str]) -> frozenset[str]:
    """Words, and the parts that a hyphen joins: without accents, and with umlauts spelt out."""
    spellings = set()
    for word in words:
        for part in {word, *(piece for piece in word.split("-") if len(piece) > 1)}:
            joined = part.replace("'", "").replace("-", "")
            spellings |= {_unaccented(joined.translate(_PLAIN)), _unaccented(joined.translate(_GERMAN))}
    return frozenset(spellings)


def _unaccented(word: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))
