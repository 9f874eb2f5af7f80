"""Masks secrets in texts, by their look and by what stands before them, in linear time."""

from __future__ import annotations

import re

# What a token of a known service begins with; a name of code has small letters, and its words are short.
_PREFIXED = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_|api_org_|sk[-_]|gh[a-z]_|github_pat_|glpat-|pypi-|xox[a-z]-|AKIA|ASIA|AIza|eyJ)"
    r"(?:[A-Za-z0-9]{12,}|(?=[\w.-]{0,64}[A-Z0-9])[\w.-]{8})[\w.-]*"
)
_CREDENTIALS = re.compile(r"//(?:[^/@\s:]*:\S{0,300}|[^/@\s]+)@")  # a password may have slashes, and an @
# Tokens of a vocabulary are no secrets.
_TOKEN = "".join(
    rf"(?<!{word}[_-])" for word in ("eos", "bos", "pad", "unk", "sep", "cls", "end", "stop", "mask", "next", "last")
)
_TOKEN += "token"
_NAME = (
    r"(?:api|access|secret|private|signing|encryption|service|account|ssh|aws|azure|x)[_-]?key|(?-i:[A-Z0-9]_KEY)|secret|"
    r"passw(?:or)?d|passphrase|pwd|credentials?|authorization|(?<![a-z])auth|(?<![a-z])cookie"
)
_IS = r"['\"]?\s{0,8}[=:](?!=)\s{0,8}"
_MARKED = r"(?!\((?:secret|left out)\))"
_TYPE = r"(?!(?:str|int|float|bool|bytes|None|none|null|True|False|Any|Optional)\b)"
_SCHEME = r"(?:bearer|basic|token)\s+(?:\((?:secret|left out)\)|\S+)"
_VALUE = rf"""{_MARKED}{_TYPE}(?:"[^"]*"|'[^']*'|{_SCHEME}|(?:(?!,\s?[\w-]+=)[^\s&])+)"""
# After "token", a number is a count, and a sign is what a parser did not expect.
_TOLD = rf"{_TOKEN}(?={_IS}[\"'\w])(?!{_IS}[\d.]+(?![\w.-]))"
_NAMED = re.compile(rf"(?i)({_NAME}|{_TOLD})({_IS}){_VALUE}")
_GIVEN = re.compile(rf"(?i)((?<![\w-])--?[\w-]*(?:{_NAME}|{_TOKEN})\s{{1,8}}){_VALUE}")
_BEARER = re.compile(r"(?i)(\bbearer\s{1,8})[\w.~+/=-]{6,}")
_SIGNED = re.compile(r"(?i)([?&][\w-]{0,40}(?:sig|signature|key)=)" + _MARKED + r"[^&\s]+")
_SECRET_NAME = re.compile(rf"(?i)(?:{_NAME}|{_TOKEN})$")


def without_secrets(text: str, mark: str) -> str:
    """Returns the text with `mark`, which is "(secret)" or "(left out)", in the place of each secret."""
    text = _PREFIXED.sub(mark, _CREDENTIALS.sub(f"//{mark}@", text))
    for pattern in (_GIVEN, _BEARER, _SIGNED):
        text = pattern.sub(rf"\1{mark}", text)
    return _NAMED.sub(rf"\1\2{mark}", text)


def names_secret(name: str) -> bool:
    """Returns whether an option, a header or a variable is named like a secret."""
    return _SECRET_NAME.search(name) is not None
