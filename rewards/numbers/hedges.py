"""Detects whether a number in a text is stated or hedged.

"near 72", "72 or something else", "72 unless it is 73", "If it is not 71, it is 72" name no number; "72, no wait, 71"
names the second; "It is 70. It is 71. It is 72." guesses once in each sentence. Linear in the text.
"""

from __future__ import annotations

import re

from grpo.plugins._pattern import lazy_pattern

_REACH = 60
_READ = 1000
_SENTENCES = 12
_LONGEST_FRAME = 80

_HEAD = (
    r"\b(?:suppose|assum(?:e|ing)|imagine|pretend(?:ing)?|let|doubts?|deny|denies"
    r"|(?:false|untrue|impossible|unlikely|doubtful|wrong|incorrect|mistake(?:n)?|error)\s+(?:that|to\s+[a-z]+)"
    r"|(?:some|others?|many|people|nobody|none|no\s+one|anyone|someone|friend|student|child|beginner|he|she|they)\s+"
    r"(?:(?:[a-z]+ly|would|might|may|could)\s+){0,2}(?:says?|said|claim(?:s|ed)?|thinks?|thought|believes?|guess(?:es)?)"
    r"(?=\s+(?:(?:that|it|the|this)\b|[\"\u201c])))"
    r"(?:\s+that)?"
)
_VERDICT = (
    r"(?:(?:[a-z]+ly|just|also|still)\s+)?(?:wrong|incorrect|false|mistaken|invalid|impossible|rejected|ruled\s+out"
    r"|too\s+(?:high|low|big|large|small|much|many|few)\b|not\s+(?:right|correct|true|it|possible"
    r"|(?:the|my|an?)\s+(?:[^\W\d_]+\s+)?(?:answer|solution|result|total)))"
)
REJECTED = lazy_pattern(
    r"[\s*$)\]}\\]*(?:"
    rf"(?:[^\W\d_]+\s+){{0,2}}?(?:is|was|are|were|would\s+be|looks|seems)\s+{_VERDICT}"
    r"|(?:[^\W\d_]+\s+){0,2}?(?:is|was)n['\u2019]t\s+(?:right|correct|true|it|possible|(?:the|my|an?)\s+(?:[^\W\d_]+\s+)?(?:answer|solution|result|total))"
    rf"|(?:[^\W\d_]+\s+)?[(\[,;:\u2013\u2014-]\s*(?:(?:which|that|it|this)\s+)?(?:(?:is|was)\s+)?(?:{_VERDICT}|nope|no)(?=\s*(?:[).,;:!\]}}]|\Z))"
    rf"|{_VERDICT}(?=[\s.!)\]}}*]*\Z))",
    re.IGNORECASE,
)
"""What stands behind a number that is said not to be the answer: "is wrong", "(too high)", ", which is impossible"."""

SUSPECT = lazy_pattern(
    rf"{_HEAD}|"
    r"\b(?:too|not|wrong|incorrect|false|mistaken|invalid|impossible|rejected|ruled|plus|minus|times|divided|multiplied|squared|cubed"
    r"|hardly|scarcely|far|nowhere|cannot|just|successor|predecessor|or|near|nearly|almost|close\s+to|than|except|but|different|unless|else|otherwise|alternatively|if|maybe"
    r"|perhaps|possibly|could|might|may|probably|guess|give|either|one\s+of|no|wait|sorry|correction|at\s+(?:least|most)|up\s+to"
    r"|oder|ou|o|so|some(?:thing)?|of|exceeds|such|example|instance|with|e\.g)\b|(?<![\d.])(\d{1,9})\b(?:[,;]?\s{1,2}\1\b){2}|[-+*/\u00d7\u00f7\u00b1]\s[a-z]|[?\u6216\u4e0d]|\u0438\u043b\u0438|\d(?:%|\.\.+|ish\b|\+(?!\s?\d))|n['\u2019]t\b",
    re.IGNORECASE,
)
"""Marks without which a text holds no hedge of one sentence, so that nothing more needs to be read."""

SUPPOSED = lazy_pattern(
    rf"(?:\b(?:if|unless|whether|wrong|incorrect|false)|{_HEAD})\s+(?:(?:the|my|your|final|correct)\s+){{0,3}}\Z",
    re.IGNORECASE,
)
"""What stands before "the answer is" where that is only supposed, doubted, denied or said by somebody else."""

ASSUMED = lazy_pattern(rf"{_HEAD}\s[^,;:=.\d\n]{{0,40}}\Z|\b(?:wrong|incorrect|false)\s+answer\b", re.IGNORECASE)
"""The same, with the words behind it up to a number or another answer."""

UNKNOWN = lazy_pattern(
    r"\b(?:I\s+(?:really\s+)?(?:do\s+not|don['\u2019]t|cannot|can['\u2019]t|could\s+not|couldn['\u2019]t)\s+(?:know|determine|solve|tell|say|figure)"
    r"|(?:I\s+have\s+)?no\s+idea|not\s+sure|unsure|just\s+a\s+guess|(?:just|only)\s+guessing|I\s+give\s+up)\b",
    re.IGNORECASE,
)
"""Words of somebody who does not know the answer."""

_BEFORE = lazy_pattern(
    r"(?:\b(?:hardly|scarcely|(?:far|nowhere\s+near)(?:\s+from)?|(?:cannot|can['\u2019]t|could\s*n[o\u2019']t)\s+be"
    r"|just\s+(?:under|over|below|above|short\s+of)|(?:successor|predecessor)\s+of|near(?:ly)?|almost|close\s+to|anything\s+but|other\s+than|except(?:\s+for)?|different\s+(?:from|than|to)"
    r"|(?:less|fewer|more|greater|larger|smaller|bigger|higher|lower)\s+than|exceeds|such\s+as|for\s+(?:example|instance),?"
    r"|(?:multiple|divisor|power|within\s+\S{1,9})\s+of)|\be\.g\.,?"
    r"|\b(?:maybe|perhaps|possibly|probably|(?:might|may|could)\s+(?:[a-z]+\s+)?be|i\s+guess|(?:my|a)\s+(?:best\s+)?guess)\b"
    r"[\s,]*(?:(?:it|that|this|the\s+[a-z]+)(?:['\u2019]s|\s+is)|is|of|would\s+be|that)?[\s:]*)"
    r"[\s$*({\[\\]*\Z",
    re.IGNORECASE,
)
_IN_WORDS = (
    r"(?:an?|half|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|hundred"
    r"|some)"
)
_AFTER = lazy_pattern(
    r"(?:ish\b|-ish\b|\s?\+(?![\s$({\\]*[\d\\a-zA-Z])"
    r"|\s?(?:squared|cubed|doubled|tripled|halved)\b(?!\s+(?:feet|foot|inch|met|cent|kilo|mile|yard|unit))"
    r"|[\s,*$)\]}]*(?:[^\W\d_]+\s+){0,2}?(?:plus\s?(?:or|/)\s?minus|plus|minus|times|divided\s+by|multiplied\s+by"
    rf"|\+\s?/\s?-|[-+*/\u00d7\u00f7\u00b1])\s+{_IN_WORDS}\b"
    r"|[\s,*$)\]}]*(?:[^\W\d_]+\s+){0,2}?(?:plus|minus)\s+(?!signs?\b|or\b)[a-z]"
    r"|[\s,*$)\]}\\]*(?:[^\W\d_]+[\s,]+){0,2}?(?:\(?(?:(?:just\s+)?a\s+guess|maybe|perhaps|possibly|probably)\s*\)?[.!\s]*\Z|or\s+(?:so|some|something|anything|another|any|others?|else|thereabouts"
    r"|more|less|fewer|not|none|neither|whatever|a\s+(?:different|number))\b|unless\b|give\s+or\s+take\b|if\s+not\b"
    r"|(?:or\s+)?else\b|otherwise\b|if\b[^.\n]{0,80}\belse\b|times\s+some(?:thing)?\b|but\s+not(?!\s*[$\d])"
    r"|with\s+(?:an?\s+)?[\d.]*\s?%?\s*(?:probability|chance|confidence)\b))",
    re.IGNORECASE,
)
_ABOUT = lazy_pattern(
    r"(?:\b(?:about|around|roughly|approximately|approx\.?|circa|ca\.|some|somewhere\s+(?:around|near)|in\s+the\s+region\s+of"
    r"|ungef\u00e4hr|etwa|vielleicht|environ|peut-\u00eatre|aproximadamente|alrededor\s+de|quiz\u00e1s?|circa"
    r"|\u043e\u043a\u043e\u043b\u043e|\u043f\u0440\u0438\u043c\u0435\u0440\u043d\u043e"
    r"|an\s+estimated|estimated(?:\s+at)?|probably|presumably|likely|I\s+(?:think|guess|believe|suppose)"
    r"|(?:my\s+)?(?:best\s+)?guess(?:\s+is)?|say)|[~\u2248\u223c\u2243\u2245]|\u5927[\u7ea6\u7d04\u6982]|[\u7ea6\u7d04\uc57d]|\u53ef\u80fd[\u662f]?|\u4e5f\u8bb8|\\(?:approx|sim|simeq|cong|thicksim)(?![a-z]))"
    r"[\s:,]*(?:(?:it|that|the\s+answer)(?:['\u2019]s|\s+is)\s+)?[\s$*({\[]*\Z",
    re.IGNORECASE,
)
_ROUGHLY = lazy_pattern(
    r"[\s,*$)\]}(]*(?:[^\W\d_]+[\s,]+){0,2}?(?:or\s+so|approximately|approx|roughly|more\s+or\s+less|I\s+(?:think|guess|believe"
    r"|suppose)|probably|presumably|maybe|perhaps|vielleicht|peut-\u00eatre|quiz\u00e1s?|(?:just\s+)?a\s+guess|(?:[a-z]+\s+)?guess\)|not\s+sure|unsure|I\s+am\s+not|I['\u2019]m\s+not)\b"
    r"|-odd\b",
    re.IGNORECASE,
)
_GLUED = lazy_pattern(r"\d(?:%|\.\.+)\s?\d")
_REPEATED = lazy_pattern(r"(?<![\d.])(\d{1,9})\b(?:[,;]?\s{1,2}\1\b){2}")
_IF_NOT = lazy_pattern(
    r"\bif\s+(?:(?:it|that|this|the\s+answer|\$?[\d.,]+)\s*(?:is|was|be|['\u2019]s)?\s*)?"
    r"(?:not|(?:is|was)n['\u2019]t|wrong|incorrect|false)\b",
    re.IGNORECASE,
)
_EITHER = lazy_pattern(r"\beither\b[^.\n]*\bor\b", re.IGNORECASE)
_MAYBE = lazy_pattern(
    r"\b(?:maybe|perhaps|possibly|(?:could|might|may)\s+(?:(?:also|well|even)\s+){0,2}be)\s+(?:\w+\s+){0,1}[$*({\[\\]*(?=\d)",
    re.IGNORECASE,
)
_POSSIBLE = lazy_pattern(
    r"\d[\s$*)\]}.,]*(?:is|are|was|would\s+be|seems|looks|remains)\s+(?:(?:also|still|just|only|quite|very|more|less|most|as|equally"
    r"|[a-z]+ly)\s+){0,2}(?:possible|plausible|conceivable|likely|probable|acceptable)\b(?!\s+[a-z]{4})",
    re.IGNORECASE,
)
_RETRACTED = lazy_pattern(
    r"\b(?:no,?\s+wait|wait,?\s+no|scratch\s+that|correction|i\s+mean|or\s+rather|oops|sorry)\b|[?!]\s*no\b,?"
    r"|,\s*(?:no|actually),?\s+(?=[$*]*\d)",
    re.IGNORECASE,
)
_BACK = lazy_pattern(
    r"[\s*_]*(?:wait|no|actually|sorry|oops|correction|hmm|hold\s+on|let\s+me\s+(?:re|double))\b|\bmistake|\bwrong\b",
    re.IGNORECASE,
)
_START = r"(?:\A|</?\w{1,20}>|[.!?;,:\n\u2014])[\s*_$)\]}>\"']*(?:(?:but|and|oh|or)[\s,]+)*"
_OTHER = (
    r"[\s:,]*(?:(?:exactly|actually|really|rather|instead|therefore|equal\s+to)[\s:]*)*(?:\\\$|[$*(\[{])*"
    r"(?:-?\d|\\[a-z(\[]|(?<=\$)[a-z(]|(?-i:[A-HJ]\b))"
)
_NO = r"(?:no|nein|non|nee|nej|nie|\u043d\u0435\u0442|\u4e0d\u5bf9|\u4e0d\u5c0d|\u4e0d\u662f|\u3044\u3084|\uc544\ub2c8)"
_REVISED = lazy_pattern(
    rf"{_START}(?:wait|no|actually|sorry|oops|correction|hmm+|rather|i\s+mean(?:t)?|scratch\s+that|edit|erratum|update"
    r"|alternatively|just\s+kidding|unless"
    r"|on\s+second\s+thoughts?|let\s+me\s+correct\s+(?:that|this|myself))\b"
    r"(?:(?:(?!verif|check|confirm)[^\n]){0,120}?\b(?:answer|it|that|this|value|result|total)\s*"
    r"(?:['\u2019]s|is|was|(?:should|must|has\s+to|would)\s+(?:be|have\s+been)|equals|:)"
    rf"{_OTHER}|[^\n]{{0,80}}\b(?:gives|makes|leaves|yields){_OTHER}|[^\n\d]{{0,60}}\bcase{_OTHER}|{_OTHER})"
    rf"|{_START}{_NO}(?:\s*[,\uff0c\u3001]\s*(?:[^\W\d]++(?:['\u2019][^\W\d]++)?[\s,]*+){{0,2}}|\s+)-?\d"
    rf"|{_START}(?:(?:my|the|final|another|backup|second|other|alternative|possible|correct|real|actual|right)\s+){{1,4}}"
    rf"(?:answer|possibility|option|candidate|guess|result)\s*(?:is|:|=|would\s+be|could\s+be){_OTHER}"
    rf"|{_START}-?\d[\d.,]*\s+(?:is|would|could|might|may)\s+(?:be\s+)?(?:(?:[a-z]+\s+){{0,2}}"
    r"(?:likely|fine|possible|acceptable|plausible)|(?:also|equally|just\s+as)\s+(?:right|correct|good))\b"
    r"|\A(?:</?\w{1,20}>\s*){0,4}[\s*_$)\]}.,;:<(-]*(?:scratch\s+that|strike\s+that|never\s?mind|just\s+kidding|(?:lol|haha|but)\s+no\b"
    rf"|(?:(?:which|that|it)\s+)?(?:(?:is|was|looks|seems)\s+)?{_VERDICT}[\s.!)]*(?=\Z|\n|[.!)]\s)"
    r"|not\s+(?:my|the|an?)\s+(?:[a-z]+\s+)?answer)"
    r"|\b(?:ignore|disregard|discard|do(?:\s+not|n['\u2019]t)\s+(?:trust|use|count|grade|believe))\s+(?:(?:the|my|this|that|previous"
    r"|above|last|final)\s+){0,3}(?:answer|above|number|value|result)\b"
    r"|\bi\s+(?:just\s+)?(?:made\s+(?:this|that|it)|invented|guessed)\b|\bonly\s+(?:a|an)\s+(?:placeholder|example|guess)\b"
    r"|(?:\A|[.!?\n]|</?\w{1,20}>)[\s*_$)\]}>(]*(?:p\.\s?s\.:?\s+)?(?:[a-z]+,?\s+){0,2}(?:that|this|it|(?:the\s+)?(?:above|answer))\s+(?:(?:is|was)\s+(?:a\s+)?"
    r"(?:wrong|incorrect|mistaken?|not\s+(?:right|correct))|can(?:not|['\u2019]t)\s+be\s+(?:right|correct))\b"
    r"|\A(?:</?\w{1,20}>\s*){0,4}[\s*_$)\]},.;:]*(?:(?:but|though|although|and)\s+)?[\s(]*(?:(?:i\s+am|i['\u2019]m)\s+(?:[a-z]+\s+)?not\s+(?:[a-z]+\s+)?"
    r"(?:sure|certain)|(?:(?:just|only|this\s+is|it\s+is|it['\u2019]s)\s+)*(?:a|my)\s+(?:best\s+)?guess|i\s+guess|maybe|perhaps"
    r"|probably|possibly|or\s+(?:so|something|thereabouts))\b",
    re.IGNORECASE,
)
_ONE_BY_ONE = lazy_pattern(
    r"\d[\s,;.]*\b(?:so|then|thus|hence|therefore)\b[\s,:]*[$*]*\d[\d,.]*(?=[\s,;]*(?:so|then|thus|hence|therefore)\b[\s,:]*[$*]*\d)",
    re.IGNORECASE,
)
_BY_CASES = lazy_pattern(r"\d\s+if\b[^.\n\d]*[^\n]*\d\s+(?:if|otherwise)\b", re.IGNORECASE)
_SENTENCE_END = lazy_pattern(r"(?<=[.!?;])(?<!\be\.g\.)(?<!\bi\.e\.)[)\"'*]{0,3}\s+|(?<=[\u3002\uff01\uff1f\uff1b])|\n")
_NUMBER = lazy_pattern(r"[-+]?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
_LABEL = lazy_pattern(
    r"\W*(?:(?:option|answer|guess|candidate|choice|possibility)\s*)?\d{1,2}\s*[.:)]\s+(?=\W{0,3}\d)", re.IGNORECASE
)
_ORDINAL = lazy_pattern(r"\b(?:first|second|third|fourth|fifth|other|next|another)\s+", re.IGNORECASE)
_OPENING = lazy_pattern(r"(?:(?:or|maybe|perhaps|possibly|so|then|and|also|but|otherwise)\b[\s,]*)+")
_MARKS = lazy_pattern(r"[\s*_`$.,;:!?>()\[\]{}\\]+")


def stated_from(sentence: str) -> int:
    """Returns where what counts of a sentence begins: behind "no wait" and the like, where a number follows; else 0."""
    for taken_back in reversed(list(_RETRACTED.finditer(sentence))):
        if _NUMBER.search(sentence, taken_back.end()):
            return taken_back.end()
    return 0


def revised(following: str) -> bool:
    """Returns whether what follows a marked answer takes it back: "Actually the answer is 73.", "No, 73", "a guess"."""
    return _REVISED.search(following[:_READ]) is not None


def doubtful(sentence: str, start: int, end: int) -> bool:
    """Returns whether the words around the number at `start` to `end` leave open whether it is the answer."""
    if SUSPECT.search(sentence) is None:
        return False
    return bool(
        _BEFORE.search(sentence, max(0, start - _REACH), start)
        or ASSUMED.search(sentence, max(0, start - 2 * _REACH), start)
        or _AFTER.match(sentence, end)
        or _IF_NOT.search(sentence)
        or _GLUED.search(sentence)
        or _REPEATED.search(sentence)
        or (_EITHER.search(sentence) and _NUMBER.search(sentence, end) is None)
    )


def guessed(content: str, start: int, end: int) -> bool:
    """Returns whether a marked answer gives a number as a guess: "about 72", "~72", "72 or so", "probably 72"."""
    before = content[max(0, start - _REACH) : start]
    return bool(_ABOUT.search(before) or _ROUGHLY.match(content, end))


def wavers(sentence: str) -> bool:
    """Returns whether a number is only a possibility, or one of several: "72, though 71 is possible", "70, so 71"."""
    return "=" not in sentence and any(form.search(sentence) for form in (_MAYBE, _POSSIBLE, _ONE_BY_ONE, _BY_CASES))


def rivals(text: str) -> list[str]:
    """Returns the other numbers that the sentences before the last one put into its words, nothing taken back between.

    Sentences that have a word or two more than the number may stand apart; bare numbers follow each other directly.
    """
    sentences = [part for part in _SENTENCE_END.split(text[-_READ:]) if part and not part.isspace()][-_SENTENCES:]
    if len(sentences) < 2 or _BACK.search(sentences[-1]):
        return []
    frame, number = _frame(sentences[-1])
    if frame is None:
        return []
    others = []
    for sentence in reversed(sentences[:-1]):
        if _BACK.search(sentence):
            break
        other, value = _frame(sentence)
        if other == frame and value != number:
            others.append(value)
        elif other != frame and frame.count(" ") < 2:
            break
    return others


def _frame(sentence: str) -> tuple[str | None, str]:
    label = _LABEL.match(sentence)
    sentence = sentence[label.end() :] if label else sentence
    numbers = _NUMBER.findall(sentence) if len(sentence) <= _LONGEST_FRAME else []
    if len(numbers) != 1:
        return None, ""
    words = _MARKS.sub(" ", _NUMBER.sub(" # ", _ORDINAL.sub("", sentence))).strip().lower()
    words = _OPENING.sub("", words, count=1) if _OPENING.match(words) else words
    return (None, "") if words.startswith("=") else (words, numbers[0].replace(",", "").rstrip("."))
