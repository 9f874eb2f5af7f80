"""Rewrites a marked answer or a gold in the usual LaTeX; unknown notation stays as it is."""

from __future__ import annotations

import re
from collections.abc import Callable

from grpo.plugins._pattern import lazy_pattern
from grpo.rewards.math.ascii import overlined
from grpo.rewards.math.guard import LONGEST
from grpo.rewards.numbers.chinese import FULL_WIDTH, respelt
from grpo.rewards.numbers.hedges import SUSPECT
from grpo.rewards.numbers.numerals import INVISIBLE
from grpo.rewards.numbers.quantity import unit
from grpo.rewards.numbers.words import spoken_number

_EMPHASIS = lazy_pattern(r"\A\s*(\*{1,3}|_{1,2}|`)(?![\s*_`])((?:(?!\1).)+?)(?<!\s)\1\s*\Z", re.DOTALL)
_NUMBER = r"[-+\u2212]?\d+(?:\.\d+)?"
_FACE = lazy_pattern(
    r"\\(?:textcolor\s?\{[a-zA-Z]+\}|color\s?\{[a-zA-Z]+\}(?=\s?\{)"
    r"|underline|uline|mathbf|mathtt|texttt|boldsymbol|bm|emph)"
    r"\s?\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
)
_VECTOR_FACE = lazy_pattern(r"\\mathbf\s?\{[a-zA-Z]\}")
_SIZES = "tiny|scriptsize|footnotesize|small|normalsize|large|Large|LARGE|huge|Huge"
_SWITCH = lazy_pattern(rf"\\(?:color\s?\{{[a-zA-Z]+\}}|(?:bf|bfseries|textstyle|{_SIZES})(?![a-zA-Z]))\s?")
_CURLY = {"lbrace": r"\{", "rbrace": r"\}"}
_CURLY_NAME = lazy_pattern(r"\\([lr]brace)(?![a-zA-Z])\s?")
_ROW_GAP = lazy_pattern(r"(\\\\)\s*\[-?\d*\.?\d+\s?(?:pt|em|ex|mm|cm)\]")
_NATURAL = lazy_pattern(r"\\log\s?_\s?(?:e(?![a-zA-Z])|\{\s*e\s*\})")
_SLANTED = lazy_pattern(r"\\[ns](?:ice)?frac(?![a-zA-Z])")
_ROUND_ROOT = lazy_pattern(r"\\sqrt\s?\(([^()]{1,60})\)")
_UNIT = (
    r"(?:\s?\\(?:text|textrm|mathrm|mbox|rm)\s?\{[^{}\d]*\}|\s?\\(?:cdot|times)(?![a-z])"
    r"|\s?\^\s?(?:-?\d|\{\s?-?\d\s?\})|\\[ ,;:!]|[\s~*]|(?<![\\A-Za-z])[A-Za-z]{1,12}(?![A-Za-z]))"
)
_UNIT_FRACTION = lazy_pattern(rf"\\[dtc]?frac\s?\{{\s?([\d.,]*)({_UNIT}*)\}}\s?\{{({_UNIT}+)\}}")
_UNIT_MARK = lazy_pattern(r"\\(?:cdot|times)(?![a-z])|\\[ ,;:!]|[{}~*]|\\(?:text|textrm|mathrm|mbox|rm)(?![a-z])")
_UNIT_WORD = lazy_pattern(r"(?<!\\)\b[A-Za-z]+")
_ANGLES = lazy_pattern(
    r"\\(?:left\s?)?\\?langle(?![a-zA-Z])\s*((?:(?!\\langle).){1,400}?)\\(?:right\s?)?\\?rangle(?![a-zA-Z])"
)
_DOTS = lazy_pattern(r"\\(?:ldots|cdots|dotsc|dotsb|dots)(?![a-zA-Z])\s?|\u2026|(?<!\.)\.{3}(?!\.)")
_RECURRING = lazy_pattern(r"(?<![\d.])(\d{0,9})\.(\d{0,9}?)(?:(\d)\3{2,}|(\d{2,9}?)\4+)\s?\\ldots(?![a-zA-Z])")
_BRACKETED = lazy_pattern(r"([-+]?)(\d{0,9})\.(\d{0,9})\((\d{1,9})\)")
_REVERSED = lazy_pattern(
    r"(?:\\left\s?)?([\[\](])((?:[^\[\](){},;]|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})+)([,;])"
    r"((?:[^\[\](){},;]|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})+?)(?:\\right\s?)?([\[\])])"
)
_FACED = r"\\(?:text|textbf|textrm|mathrm|mathbf|mbox)\s?\{"
_BLANKS = r"\\[ ,;:!]|\\q?quad(?![a-z])|[\s~:.]"
_LABEL = lazy_pattern(rf"\s*\$?(?:{_FACED}\s*)?\(([A-H])\)(?:\s?\}}|(?=\d)|(?:{_BLANKS})+)(?:{_BLANKS}|\}})*(?=\S)")
_NAME = r"[^\W\d_]{2,20}(?:[ '\u2019-][^\W\d_]{1,20}){0,5}"
_NAMED_VALUE = lazy_pattern(
    rf"\s*(?:{_FACED}|[*_]{{1,3}})?\s*(?P<name>{_NAME})\s*(?:\}}\s*:|[*_]{{1,3}}\s*:|:[*_]{{0,3}}|:\s*\}})(?:{_BLANKS})*"
    r"(?P<value>(?:[-+\u2212.]?\d|[\\$(\[{]|[a-zA-Z](?![a-zA-Z])).*)",
    re.DOTALL,
)
_OF = lazy_pattern(r"(?<!\bone )(?<!\bany )\b(?:of|with|in|for)\b")
_NAMED = lazy_pattern(r"[^\W\d_]{2}[\s*_}]*:")
_LEAD = lazy_pattern(
    rf"{_FACED}[^{{}}\d]{{0,80}}(?:\b(?:is|are|equals|be)|:|=)\s*\}}\s*(?:\\[ ,;:!]\s*)*(?=\S)", re.IGNORECASE
)
_QUANTITY = lazy_pattern(rf"\A{_FACED}[^{{}}\d=]{{1,60}}\}}\s*=\s*(?=[^=\s][^=]*\Z)")
_ANSWER_PREFIX = lazy_pattern(r"(?:the\s+)?(?:final\s+)?answer\s*(?:\bis\b\s*:?|:|=)\s*(?=\S)", re.IGNORECASE)
_MINUS = lazy_pattern(
    rf"\A(?:{_FACED}\s*)?(?:minus|negative)(?:\s*\}}|\s)\s*\$?(?=[\d\\(]|[a-zA-Z](?![a-zA-Z]))", re.IGNORECASE
)
_LISTED = lazy_pattern(rf"{_FACED}((?:[-\d.,;()\s]|and|or|[A-H](?![a-z]))+)\}}")
_LAST_COMMA = lazy_pattern(r"(?<!\\),\s*\Z")
_FLIPPED = lazy_pattern(rf"({_NUMBER}|\\[dt]?frac\{{\d+\}}\{{\d+\}})\s*=\s*([a-zA-Z])")
_ANGLED = lazy_pattern(r"[<\u27e8]\s*([^<>=,\u27e8\u27e9]{1,80}(?:,[^<>=,\u27e8\u27e9]{1,80})+)[>\u27e9]")
_RATIO = lazy_pattern(rf"({_NUMBER})\s+to\s+({_NUMBER})")
_NESTED = lazy_pattern(r"\[\s*(\[[^\[\]]{1,400}\](?:\s*,\s*\[[^\[\]]{1,400}\])*)\s*\]")
_HALF_DAY = lazy_pattern(r"(?<=\d)\s*([ap])\.?\s?m\b\.?", re.IGNORECASE)
_HALF_DAY_FACED = lazy_pattern(
    r"(?<=:\d\d)(?:\\[ ,;:]|[\s~])*\\(?:text|textrm|mathrm|mbox)\s?\{\s*([ap])\.?\s?m\.?\s*\}", re.IGNORECASE
)
_CURRENCY = r"(?:USD|EUR|GBP|INR|CAD|AUD|JPY|CNY|RMB|CHF|Rs\.?)"
_PRICED = lazy_pattern(
    rf"(?:(?:\\(?:text|textrm|mathrm|mbox)\s?\{{\s*{_CURRENCY}\s*\}}|{_CURRENCY})(?:\\[ ,;:]|[\s~])*)(-?\d[\d.,{{}}]*)"
)
_ROUGHLY = lazy_pattern(
    r"(?:\\(?:text|textrm|mathrm|mbox)\s?\{\s*)?(?:approximately|approx\.?|about|roughly|around)\s*\}?"
    r"(?:\\[ ,;:]|[\s~])*(?=-?[\d\\])",
    re.IGNORECASE,
)
_TURNED = lazy_pattern(
    rf"({_NUMBER})(?:\\[ ,;:]|[\s~])*(?:\\(?:text|textrm|mathrm|mbox)\s?\{{\s*)?degrees?\s*\}}?", re.IGNORECASE
)
_SCIENTIFIC = lazy_pattern(rf"({_NUMBER})[eE]([-+]?\d{{1,3}})")
_SPACED = lazy_pattern(r"-?\d{1,3}(?:\s\d{3})+")
_ALL = lazy_pattern(r"(?:the set of )?all (?:the )?reals?(?: numbers)?(?: x)?", re.IGNORECASE)
_SIGNED = lazy_pattern(
    r"(?:the set of )?all (?:the )?(?P<non>non-?)?(?P<sign>positive|negative) "
    r"(?:reals|real numbers|values|numbers)(?: x)?",
    re.IGNORECASE,
)
_PART = lazy_pattern(
    r"(?:the set of )?all (?:the )?(?:reals|real numbers|numbers)(?: x)?,? (?:that are |which are )?"
    r"(?:(?P<out>except(?: for)?|other than|but|excluding|not equal to|different from) "
    r"|(?P<low>(?:strictly )?(?:greater|larger|more) than(?P<low_or> or equal to)?|at least|no less than) "
    r"|(?P<high>(?:strictly )?(?:less|smaller) than(?P<high_or> or equal to)?|at most|no (?:more|greater) than) "
    r"|between )(?P<value>[^a-zA-Z]*(?:(?:[a-zA-Z]\s*=|and|or|,|\\\\[a-z]+)[^a-zA-Z]*)*?)"
    r"(?P<ends>,? (?:in|ex)clusive)?",
    re.IGNORECASE,
)
_NOWHERE = lazy_pattern(r"(?:(?:it|(?:the|this) limit) )?does(?: not|n['\u2019]t) exist|DNE", re.IGNORECASE)
_ENDLESS = lazy_pattern(r"(?:positive )?infinity", re.IGNORECASE)
_NONE = lazy_pattern(r"(?:there (?:is|are) )?no (?:real )?solutions?|(?:the )?empty set", re.IGNORECASE)
_TEXT = lazy_pattern(r"\\(?:text|textbf|textit|textrm|mathrm|mbox)\s?\{([^{}]*)\}")

_LONGEST_VECTOR = 400
_TRANSPOSED = lazy_pattern(
    r"(?:\\left\s?)?(?P<open>[(\[]|\\langle|\\begin\{[pb]matrix\})(?P<items>[^()\[\]]{1,300}?)"
    r"(?:\\right\s?)?(?:[)\]]|\\rangle|\\end\{[pb]matrix\})\s*\^\s*\{?\s*"
    r"(?:\\(?:mathrm|mathsf|text|top|intercal)\s?\{?\s*)?[Tt]?\s*\}{0,2}",
    re.DOTALL,
)
_VECTOR_NAME = lazy_pattern(r"\s*(?:\\(?:vec|mathbf|boldsymbol|bm|overrightarrow)\s?\{?\s*)?[a-zA-Z]{1,2}\}?\s*=\s*")
_VECTOR_STYLE = r"\\(?:hat|vec|bar|mathbf|boldsymbol|bm|textbf|mathrm|overrightarrow)(?![a-zA-Z])"
_UNIT_VECTOR = lazy_pattern(
    rf"{_VECTOR_STYLE}\s?\{{?\s*(?:{_VECTOR_STYLE}\s?\{{?\s*)?(?:\\([ij])math|([ijk]))(?![a-zA-Z])\s*\}}{{0,2}}"
)
_PLAIN_VECTOR = lazy_pattern(r"[\d\s+\-./ijk\\{}()]*")
_VECTOR_TERM = lazy_pattern(r"(?P<sign>[+-]?)(?P<before>[^+\-<>]*?)<(?P<unit>[ijk])>")
_AXES = "ijk"


def normalized(text: str) -> str:
    """Returns a marked answer, or a gold, in the usual spelling; what is longer than `LONGEST` as it is."""
    if len(text) > LONGEST:
        return text
    if not text.isascii():
        text = respelt(text.translate(FULL_WIDTH))
        text = overlined(text.translate(INVISIBLE)).replace("\u00b1", "\\pm ").replace("\u2213", "\\mp ")
    if text.strip()[:1] in "*_`":
        text = _EMPHASIS.sub(r"\2", text, count=1)
    text = _as_column(text)
    if "\\" in text:
        text = _commands(text)
    if "ldots" in text or "..." in text or "\u2026" in text:
        text = _DOTS.sub(r"\\ldots ", text)
        text = _RECURRING.sub(lambda match: repeating(match[1], match[2], match[3] or match[4]), text)
    if "]" in text or "[" in text:
        text = _NESTED.sub(_matrix, _REVERSED.sub(_interval, text))
    return _whole(text)


def choice_label(text: str) -> tuple[str, str]:
    """Returns the letter that stands before a value, as in "(B) 12", and the value; "" and the text without one."""
    match = _LABEL.match(text)
    return (match[1], text[match.end() :]) if match and len(text) <= LONGEST else ("", text)


def without_name(text: str) -> str:
    """Returns a marked answer without the words before its colon: "Total: 72" is 72.

    A name that denies or hedges ("Not: 72") stays, and so does that of one value beside others.
    """
    faced = _TEXT.fullmatch(text.strip())
    match = _NAMED_VALUE.fullmatch(faced[1] if faced else text) if ":" in text and len(text) <= LONGEST else None
    if match is None or _NAMED.search(match["value"]) or SUSPECT.search(_OF.sub("", match["name"])):
        return text
    return match["value"]


def _as_column(text: str) -> str:
    """Rewrites a transposed row, or a sum of multiples of unit vectors, as a column."""
    if len(text) > _LONGEST_VECTOR or not ("^" in text or {*text} >= {*"ij"} or "k" in text):
        return text
    named = _VECTOR_NAME.match(text)
    core = (text[named.end() :] if named else text).strip().strip("$").strip()
    turned = _TRANSPOSED.fullmatch(core) if "^" in core[-20:] else None
    if turned is not None and ("," in turned["items"] or "&" in turned["items"]):
        return _column(re.split(r"[,&]", turned["items"]))
    core = _UNIT_VECTOR.sub(lambda match: f"<{match[1] or match[2]}>", core)
    if "<" not in core and len({*core} & {*_AXES}) > 1 and _PLAIN_VECTOR.fullmatch(core):
        core = re.sub(r"(?<!\\)([ijk])", r"<\1>", core)
    sizes: dict[str, str] = {}
    position = 0
    core = re.sub(r"\s+", "", core) if "<" in core else ""
    while position < len(core):
        term = _VECTOR_TERM.match(core, position)
        if term is None or term["unit"] in sizes or (position and not term["sign"]):
            return text
        sizes[term["unit"]] = term["sign"].replace("+", "") + (term["before"] or "1")
        position = term.end()
    return _column([sizes.get(axis, "0") for axis in _AXES if axis != "k" or "k" in sizes]) if sizes else text


def _column(items: list[str]) -> str:
    return r"\begin{pmatrix}" + r" \\ ".join(item.strip() for item in items) + r"\end{pmatrix}"


def _commands(text: str) -> str:
    """Removes faces and colours; unifies fractions, angle brackets and dots."""
    for _ in range(3):
        text, changed = _FACE.subn(_unfaced, text)
        if not changed:
            break
    text = _UNIT_FRACTION.sub(_unit, _ROUND_ROOT.sub(r"\\sqrt{\1}", text))
    text = _NATURAL.sub(r"\\ln ", _SLANTED.sub(r"\\frac", _SWITCH.sub("", text)))
    text = _ROW_GAP.sub(r"\1 ", _CURLY_NAME.sub(lambda name: _CURLY[name[1]], text))
    return _DOTS.sub(r"\\ldots ", _ANGLES.sub(r"(\1)", text))


def _unit(match: re.Match[str]) -> str:
    """A unit that is set as a fraction, in one line: `\\frac{\\text{m}}{\\text{s}^2}` is `\\text{ m/s^2}`."""
    if not any(map(str.isalpha, _UNIT_MARK.sub(" ", match[2]))):
        return match[0]
    words = _UNIT_WORD.findall(_TEXT.sub("", f"{match[2]} {match[3]}"))
    if words and (max(map(len, words)) < 2 or any(unit(f"1 {word}") is None for word in words)):
        return match[0]  # letters, which are variables
    upper, lower = (" ".join(_UNIT_MARK.sub(" ", part).split()).replace(" ^", "^") for part in match.groups()[1:])
    return rf"{match[1]}\text{{ {upper}/{lower}}}" if any(map(str.isalpha, lower)) else match[0]


def _unfaced(match: re.Match[str]) -> str:
    return match[0] if _VECTOR_FACE.fullmatch(match[0]) else f"{{{match[1]}}}"


def repeating(whole: str, fixed: str, repeated: str) -> str:
    """Returns a repeating decimal as a fraction in LaTeX: 0.1666... is (16 - 1) / 90."""
    upper = int((whole + fixed + repeated) or "0") - int((whole + fixed) or "0")
    return rf"\frac{{{upper}}}{{{'9' * len(repeated)}{'0' * len(fixed)}}}"


def _interval(match: re.Match[str]) -> str:
    """An interval with the brackets of ISO 31-11, and with semicolons, in the usual ones."""
    opening, low, comma, high, closing = match.groups()
    reversed_ = opening == "]" or closing == "["
    if not low.strip() or not high.strip() or not (reversed_ or comma == ";"):
        return match[0]
    return f"{'(' if opening in ']' else opening}{low},{high}{')' if closing == '[' else closing}"


def _matrix(match: re.Match[str]) -> str:
    rows = [row.replace(",", "&") for row in re.findall(r"\[([^\[\]]*)\]", match[1])]
    return r"\begin{pmatrix}" + r"\\".join(rows) + r"\end{pmatrix}"


def _whole(text: str) -> str:
    """What can be said of an answer only when it is nothing else."""
    core = text.strip().strip("$").strip()
    if core.isdecimal():
        return text
    prefix = _ANSWER_PREFIX.match(core)
    bare = _LAST_COMMA.sub(
        "", core[prefix.end() :] if prefix else _LEAD.sub("", _QUANTITY.sub("", core, count=1), count=1)
    )
    bare = _ROUGHLY.sub("", bare, count=1) if _ROUGHLY.match(bare) else bare
    bare = _MINUS.sub("-", bare, count=1)
    listed = _LISTED.fullmatch(bare)
    bare = listed[1] if listed else bare
    words = _TEXT.sub(r"\1", bare).strip()
    percent = next((end for end in ("\\%", "%", " percent", " per cent") if words.endswith(end)), "")
    spoken = spoken_number(words.removesuffix(percent))
    if spoken is not None:
        upper, lower = spoken.numerator, spoken.denominator
        return (f"{upper}" if lower == 1 else rf"\frac{{{upper}}}{{{lower}}}") + ("\\%" if percent else "")
    put = known_words(words)
    if put is not None:
        return put
    for form, respell in _RESPELT:
        match = form.fullmatch(bare)
        if match:
            return respell(match)
    return _HALF_DAY.sub(_of_day, _HALF_DAY_FACED.sub(_of_day, text if bare == core else bare))


def known_words(text: str) -> str | None:
    """Returns the LaTeX of an answer that has usual words: "no solution", "all real numbers", "infinity"; else None."""
    matches = ((known.fullmatch(text.removesuffix(".")), put) for known, put in _IN_WORDS)
    return next((put(match) for match, put in matches if match is not None), None)


def _of_day(match: re.Match[str]) -> str:
    return f" {match[1].upper()}M"


def _signed(match: re.Match[str]) -> str:
    low = (match["sign"].lower() == "positive") != bool(match["non"])
    return (r"[0,\infty)" if low else r"(-\infty,0]") if match["non"] else (r"(0,\infty)" if low else r"(-\infty,0)")


def _part(match: re.Match[str]) -> str:
    """All real numbers but some, or on one side of a number, or between two."""
    values = [value.partition("=")[2] or value for value in re.split(r",|\band\b|\bor\b", match["value"])]
    values = [value.strip().strip("$").strip() for value in values if value.strip()]
    if match["out"]:
        return rf"\mathbb{{R}} \setminus \{{{','.join(values)}\}}"
    if match["low"]:
        closed = match["low_or"] or match["low"].lower() in ("at least", "no less than")
        return rf"{'[' if closed else '('}{values[0]},\infty)"
    if match["high"]:
        closed = match["high_or"] or match["high"].lower().startswith(("at most", "no "))
        return rf"(-\infty,{values[0]}{']' if closed else ')'}"
    closed = "inclusive" in (match["ends"] or "").lower()
    return f"[{','.join(values)}]" if closed else f"({','.join(values)})"


_IN_WORDS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (_ALL, lambda _: r"\mathbb{R}"),
    (_NONE, lambda _: r"\emptyset"),
    (_ENDLESS, lambda _: r"\infty"),
    (_NOWHERE, lambda _: "DNE"),
    (_SIGNED, _signed),
    (_PART, _part),
)
_RESPELT: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (_TURNED, lambda match: rf"{match[1]}^\circ"),
    (_SCIENTIFIC, lambda match: rf"{match[1]} \times 10^{{{match[2].lstrip('+')}}}"),
    (_FLIPPED, lambda match: f"{match[2]}={match[1]}"),
    (_PRICED, lambda match: match[1]),
    (_SPACED, lambda match: "".join(match[0].split())),
    (_ANGLED, lambda match: f"({match[1]})"),
    (_RATIO, lambda match: f"{match[1]}:{match[2]}"),
    (_BRACKETED, lambda match: f"{match[1]}{repeating(match[2], match[3], match[4])}"),
)
