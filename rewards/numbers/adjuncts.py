"""Blanks out the parts of a sentence that are not its value: time, purpose and total.

"He will be 28 in 4 years", "It takes 7 days to read the 210-page book", "She needs 12 more than Tom, who has 30", "6,
attained at x = 2" and "72 (48 + 24)" each state one number and name others. A blank replaces every character, so that
positions stay. Only the last 400 characters are read, each form in bounded steps.
"""

from __future__ import annotations

import re
from fractions import Fraction

from grpo.plugins._pattern import lazy_pattern

_READ = 400
_NUMBER = r"[$]?(?:\d[\d,]*(?:\.\d+)?(?:/\d+)?|\.\d+)%?"
_FEW = r"[*_$]{0,2}(?:\s+[^\W\d_][^\W\d_'\u2019-]{0,20}){0,4}"
_END = r"[\s.*_]*\Z"
_ANY = r"(?:(?!\b(?:so|then|thus|hence|total|giving|leaving)\b)(?:[^=.!?;:\n]|\.(?=\d)))"
_PERIOD = r"(?:seconds?|minutes?|hours?|days?|weeks?|months?|years?)"
_CONTAINER = (
    r"(?:box(?:es)?|bags?|pack(?:et|age)?s?|cartons?|bottles?|cans?|jars?|crates?|groups?|rows?|sets?|rolls?|batch(?:es)?"
    r"|cases?|containers?|bundles?|trays?|baskets?|bunch(?:es)?|stacks?|teams?)"
)
_EARNED = (
    r"(?:makes?|made|earn(?:s|ed)?|produces?d?|travel(?:s|l?ed)?|drives?|drove|walk(?:s|ed)?|runs?|ran|saves?d?|sells?"
    r"|sold|uses?d?|eats?|ate|drinks?|drank|bakes?d?|spends?|spent|burn(?:s|ed)?|collect(?:s|ed)?|gain(?:s|ed)?|loses?"
    r"|lost|pay(?:s)?|paid|receives?d?|types?d?|writes?|wrote|cycles?d?|rides?|rode|flies|fl[ey]w?|swims?|swam"
    r"|falls?|fell|drops?|rises?|rose|climbs?|moves?|rolls?|slides?|flows?|grows?|grew|covers?|goes|went|completes?)"
)


_BETWEEN = (". ", "? ", "! ", "\n")


def _form(head: str, tail: str) -> re.Pattern[str]:
    """A pattern of a number with its noun, which is kept, and the rest of the sentence, which is not."""
    return lazy_pattern(rf"({head})({tail}){_END}", re.IGNORECASE)


_STATED = rf"{_NUMBER}{_FEW}"
_YEAR = _form(_STATED, r"\s+(?:in|since)\s+(?:the\s+year\s+)?(?:1[5-9]|20)\d\d")
_AGE = _form(
    rf"\b(?:is|was|be|been|turns?|turned)\s+(?:exactly\s+)?{_NUMBER}(?:\s+years?(?:\s+old)?)?",
    rf"\s+(?:in|after)\s+(?:another\s+)?{_NUMBER}(?:\s+more)?\s+years?(?:\s+from\s+now)?",
)
_PURPOSE = _form(
    rf"\b(?:takes?|took|needs?|needed|requires?|required|calls?\s+for|must|should|ha(?:ve|s|d)\s+to)\b[^.!?\n\d]{{0,60}}?{_STATED}"
    rf"|{_NUMBER}\s+more{_FEW}|{_STATED}\s+(?:needed|required|enough|sufficient|necessary)",
    rf"\s+(?:in\s+order\s+to\s+|to\s+|for\s+(?={_NUMBER}|all\b|the\b))(?=[^\W\d_]{{2}}|{_NUMBER}){_ANY}{{0,40}}?\d{_ANY}{{0,80}}",
)
_RATE = _form(
    rf"\b{_EARNED}\b[^.!?\n\d]{{0,40}}?(?<!\ball )(?<!\bthe ){_STATED}",
    rf"\s+(?:in|over|within|during|(?:for\s+)?every|per)\s+(?:(?:the|these|those|all|next|first|last|a\s+total\s+of)\s+)"
    rf"{{0,2}}{_NUMBER}(?:\s+[^\W\d_]{{2,12}})?\s+{_PERIOD}",
)
_SPARE = _form(
    _STATED,
    rf",?\s+with\s+(?:only\s+|just\s+)?{_NUMBER}{_FEW}\s+(?:left(?:\s?over)?|leftover|remaining|to\s+spare|over)",
)
_PACE = _form(
    rf"{_NUMBER}\s+[^\W\d_]+\s+(?:per|an?)\s+[^\W\d_]+",
    rf"\s+(?:for|over|in)\s+{_NUMBER}\s+{_PERIOD}(?:\s{_ANY}{{0,60}})?",
)
_BOUGHT = _form(
    rf"\b(?:buys?|gets?|purchases?|afford)\s+(?:up\s+to\s+)?{_STATED}", rf"\s+(?:for|with)\s+(?=[$]){_NUMBER}{_FEW}"
)
_PRICE = _form(
    rf"\b(?:is|was|are|were|be|comes\s+to)\s+(?:exactly\s+|only\s+|just\s+)?(?=[$]){_NUMBER}",
    rf"\s+for\s+(?:(?:the|all|these|those|his|her|their|both)\s+){{0,2}}{_NUMBER}{_FEW}",
)
_WHOLE = _form(
    rf"{_NUMBER}(?:\s+[^\W\d_]+){{1,4}}", rf"\s+out\s+of\s+(?:(?:a\s+total\s+of|the)\s+)?{_NUMBER}{_ANY}{{0,60}}"
)
_FILLED = _form(rf"{_NUMBER}\s+(?:more\s+|such\s+)?{_CONTAINER}", rf"\s+of\s+{_NUMBER}{_FEW}")
_PRICED = _form(
    _STATED, rf"\s+(?:at|for|costing|worth)\s+{_NUMBER}{_FEW}\s*(?:each|apiece|per\s+\w{{1,12}}|an?\s+\w{{1,12}})"
)
_COMPARED = _form(
    rf"{_NUMBER}{_FEW}\s+(?:more|fewer|less|older|younger|taller|shorter|longer|faster|heavier|lighter|higher|lower|larger"
    rf"|smaller|greater|cheaper|farther|further){_FEW}",
    rf"\s+than\s+{_ANY}{{0,60}}?\d{_ANY}{{0,60}}",
)
_APART = _form(_STATED, rf",\s+(?:which\s+is\s+)?{_NUMBER}{_FEW}\s+than\b{_ANY}{{0,60}}")
_BESIDE = _form(_STATED, rf",?\s+(?:along\s+with|together\s+with|in\s+addition\s+to)\s+{_ANY}{{0,30}}?\d{_ANY}{{0,60}}")
_RANGE = _form(
    rf"\b(?:is|are|has|have|exactly)\s+(?:exactly\s+)?{_STATED}",
    r"\s+(?:(?:in|on|over)\s+(?:the\s+)?(?:interval|range)\b[^.!?]{0,60}"
    rf"|(?:between|from)\s+{_NUMBER}\s+(?:and|to)\s+{_NUMBER}(?:,\s+inclusive)?|(?:less|greater|smaller|larger)\s+than\s+{_NUMBER})",
)
_FORMERLY = _form(
    _STATED,
    rf",?\s+(?:(?:as\s+)?compared\s+(?:to|with)|(?:up|down)\s+from|instead\s+of|rather\s+than|as\s+opposed\s+to)\s+"
    rf"{_ANY}{{0,60}}?\d(?:{_ANY}|:\d){{0,60}}",
)
_NUMBERED = _form(
    _STATED,
    r"\s+(?:on|in|at|by|of|from|for|during)\s+(?:day|page|week|row|chapter|grade|room|minute|step|question|problem|part"
    r"|case|example|exercise|lap|round|level|year|month)\s+(?:number\s+)?#?\d{1,4}",
)
_CONDITION = lazy_pattern(
    r"([\d$)}%](?:\s?(?!at\b|when\b|if\b|for\b|with\b)[A-Za-z\u00b0][A-Za-z/^\u00b7\u00b2\u00b3]{0,11})?)([\s,]+"
    r"(?:(?:which|is|it|and|attained|achieved|reached|obtained|occurs|occurring|taken|equality|holds)\s+){0,4}"
    rf"(?:at|when|where|if|for|with)\s+\$?\\?[a-zA-Z]\w{{0,8}}\s*=[^,;.?!]{{1,60}}){_END}",
    re.IGNORECASE,
)
_REASON = lazy_pattern(
    rf"([\d$)}}%](?:\s+[^\W\d_]+){{0,3}}[,;]?\s+)((?:since|because)\s(?:[^.!?\n]|\.(?=\d))*){_END}", re.IGNORECASE
)
_AFTERWARDS = lazy_pattern(
    r"(\d(?:\s+[^\W\d_]+){0,3})(\s+after\s(?:(?!\b(?:so|then|thus|total|leaves|leaving|has|have|is|are)\b)[^=,.!?\n])"
    rf"{{1,80}}){_END}",
    re.IGNORECASE,
)
_CHECKED = lazy_pattern(
    r"\b((?:numbers?|integer|prime|answer|value|largest|smallest|greatest|least)\b[^.!?\n\d]{0,40}\$?(?P<said>\d{1,9})\$?)"
    r"(,?\s+(?:and|as|where|with|while|but)\s+(?:indeed\s+)?\$?(?P=said)\s*(?:\^|\*\*|[-+*/\u00b2\u00b3\u00d7\u00b7]|\\)"
    rf"[^.!?\n]{{1,80}}){_END}",
    re.IGNORECASE,
)
_FORMS = (
    (_CONDITION, "="),
    (_REASON, "since ", "because "),
    (_AFTERWARDS, " after "),
    (_CHECKED, "="),
    (_YEAR, " in ", " since "),
    (_AGE, " year"),
    (_SPARE, " with "),
    (_APART, " than "),
    (_COMPARED, " than "),
    (_RANGE, " than ", " from ", " between ", " interval "),
    (_BESIDE, " with ", " in addition "),
    (_FORMERLY, " than ", " of ", " from ", " compared "),
    (_PURPOSE, " to ", " for "),
    (_PRICED, " each", " per ", " a ", " an ", " apiece"),
    (_RATE, " in ", " every ", " over ", " within ", " during "),
    (_PACE, " for ", " over "),
    (_BOUGHT, " for "),
    (_PRICE, " for "),
    (_BOUGHT, " with "),
    (_FILLED, " of "),
    (_NUMBERED, " on ", " in ", " at ", " by ", " of ", " from ", " for ", " during "),
)
"""Forms, and what a sentence must hold one of for each of them to be looked for."""

_COMPOUND = lazy_pattern(r"(?<![\w.,/^-])[$]?\d[\d,.]{0,12}-[A-Za-z]{3,}")
_WORKED = lazy_pattern(
    rf"(?<![\w.^])[$]?(?P<said>\d[\d,]*(?:\.\d+)?)(?P<noun>{_FEW})\s+\((?P<sum>[^()]{{3,80}})\)"
    r"(?!\s*[-+*/^=(\u00d7\u00f7\u00b7])"
)
_TERM = lazy_pattern(r"\s*[$]?(\d[\d,]*(?:\.\d+)?)(?:\s+[^\W\d_]+){0,3}\s*")
_SHARE = lazy_pattern(r"\b(?:probabilit|chance|odds|fraction|proportion|likelihood|ratio)", re.IGNORECASE)
_PART = lazy_pattern(r"(?<![\w.])\d[\d,]*(?<!,)(?:\.\d+)?")
_SIGN = lazy_pattern(r"([-+*/\u00d7\u00f7\u00b7])")


def main_clause(text: str) -> str:
    """Returns a text with blanks for what its last sentence says besides its value."""
    end = len(text.rstrip())
    start = max(len(text) - _READ, 0, *(text.rfind(mark, 0, end) + len(mark) for mark in _BETWEEN))
    head, tail = text[:start], text[start:]
    tail = without_parts(tail)
    for form, *marks in _FORMS:
        for mark in marks:
            if mark in tail:
                tail = _kept(form, tail)
    if " out of " in tail and not _SHARE.search(tail):
        tail = _kept(_WHOLE, tail)
    return head + (_without_compounds(tail) if "-" in tail else tail)


def _kept(form: re.Pattern[str], tail: str) -> str:
    match = form.search(tail)
    return tail if match is None else tail[: match.end(1)].ljust(len(tail))


def without_parts(text: str) -> str:
    """Returns a text with blanks for brackets that name the parts of a number: "72 (48 in May, 24 in June)"."""
    return _WORKED.sub(_without_work, text) if "(" in text else text


def _without_compounds(sentence: str) -> str:
    """Removes "210-page" and the like, where the sentence has another number."""
    text = _COMPOUND.sub(lambda match: " " * len(match[0]), sentence)
    return text if any(map(str.isdigit, text)) else sentence


def _without_work(match: re.Match[str]) -> str:
    """Removes a calculation or parts in brackets that come to the number."""
    stated = Fraction(match["said"].replace(",", ""))
    sides = [_value(side) for side in match["sum"].split("=")]
    calculated = None not in sides and stated in sides and _SIGN.search(match["sum"])
    parts = [Fraction(part.replace(",", "")) for part in _PART.findall(match["sum"])]
    if not calculated and not (len(parts) > 1 and sum(parts) == stated and not _SIGN.search(match["sum"])):
        return match[0]
    kept = match.start("sum") - 1 - match.start()
    return match[0][:kept] + " " * (len(match[0]) - kept)


def _value(text: str) -> Fraction | None:
    parts = _SIGN.split(text)
    terms = [_TERM.fullmatch(part) for part in parts[::2]]
    if None in terms:
        return None
    numbers = [Fraction(term[1].replace(",", "")) for term in terms if term is not None]
    total, product = Fraction(0), numbers[0]
    for sign, number in zip(parts[1::2], numbers[1:], strict=True):
        if sign in "+-":
            total, product = total + product, number if sign == "+" else -number
        elif sign in "/\u00f7":
            if not number:
                return None
            product /= number
        else:
            product *= number
    return total + product
