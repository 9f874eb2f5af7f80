"""Respells vectors as columns: transposed rows, `(1,2,3)^T`, and sums, `\\mathbf{i} + 2\\mathbf{j} + 3\\mathbf{k}`."""

from __future__ import annotations

import re

from grpo.plugins._pattern import lazy_pattern

_LONGEST = 400
_TURNED = lazy_pattern(
    r"(?:\\left\s?)?(?P<open>[(\[]|\\langle|\\begin\{[pb]matrix\})(?P<items>[^()\[\]]{1,300}?)"
    r"(?:\\right\s?)?(?:[)\]]|\\rangle|\\end\{[pb]matrix\})\s*\^\s*\{?\s*"
    r"(?:\\(?:mathrm|mathsf|text|top|intercal)\s?\{?\s*)?[Tt]?\s*\}{0,2}",
    re.DOTALL,
)
_NAME = lazy_pattern(r"\s*(?:\\(?:vec|mathbf|boldsymbol|bm|overrightarrow)\s?\{?\s*)?[a-zA-Z]{1,2}\}?\s*=\s*")
_FACE = r"\\(?:hat|vec|bar|mathbf|boldsymbol|bm|textbf|mathrm|overrightarrow)(?![a-zA-Z])"
_UNIT = lazy_pattern(rf"{_FACE}\s?\{{?\s*(?:{_FACE}\s?\{{?\s*)?(?:\\([ij])math|([ijk]))(?![a-zA-Z])\s*\}}{{0,2}}")
_PLAIN = lazy_pattern(r"[\d\s+\-./ijk\\{}()]*")
_TERM = lazy_pattern(r"(?P<sign>[+-]?)(?P<before>[^+\-<>]*?)<(?P<unit>[ijk])>")
_AXES = "ijk"


def as_column(text: str) -> str:
    """Returns a transposed row, or a sum of multiples of unit vectors, as a column; other texts as they are."""
    if len(text) > _LONGEST or not ("^" in text or {*text} >= {*"ij"} or "k" in text):
        return text
    named = _NAME.match(text)
    core = (text[named.end() :] if named else text).strip().strip("$").strip()
    turned = _TURNED.fullmatch(core) if "^" in core[-20:] else None
    if turned is not None and ("," in turned["items"] or "&" in turned["items"]):
        return _column(re.split(r"[,&]", turned["items"]))
    core = _UNIT.sub(lambda match: f"<{match[1] or match[2]}>", core)
    if "<" not in core and len({*core} & {*_AXES}) > 1 and _PLAIN.fullmatch(core):
        core = re.sub(r"(?<!\\)([ijk])", r"<\1>", core)
    sizes: dict[str, str] = {}
    position = 0
    core = re.sub(r"\s+", "", core) if "<" in core else ""
    while position < len(core):
        term = _TERM.match(core, position)
        if term is None or term["unit"] in sizes or (position and not term["sign"]):
            return text
        sizes[term["unit"]] = term["sign"].replace("+", "") + (term["before"] or "1")
        position = term.end()
    return _column([sizes.get(axis, "0") for axis in _AXES if axis != "k" or "k" in sizes]) if sizes else text


def _column(items: list[str]) -> str:
    return r"\begin{pmatrix}" + r" \\ ".join(item.strip() for item in items) + r"\end{pmatrix}"
