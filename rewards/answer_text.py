"""Finds the text that counts as an answer: behind the reasoning, without what a reader does not see.

Extracts the stated answer from it, too, if that is a text and no number.
"""

from __future__ import annotations

import re

from grpo.plugins._pattern import lazy_pattern

_READ = 200_000
_EMPTY = lazy_pattern(
    r"(?:<(answer|solution)\b[^<>\n]{0,80}>\s*+</\1\s*>|\\(?:f?boxed|f(?:rame)?box)\s?\{\s*+\})\W*+\Z", re.IGNORECASE
)
_END_TOKENS = lazy_pattern(r"(?:\s*(?:<\|[^<>|\s]{1,40}\|>|</s>|<eos>|<end_of_turn>))+\s*\Z")
_TAG = lazy_pattern(r"</?[a-z_]{1,20}\s*>", re.IGNORECASE)
_UNFINISHED = lazy_pattern(r"</(answer|solution)(?=\s*(?:\Z|\n|<))", re.IGNORECASE)
_CUT_OFF = lazy_pattern(r"(?<=.)</?[a-zA-Z]{0,7}\Z")
_OPENING = lazy_pattern(r"<(answer|solution)\b[^<>\n]{0,80}>|\\(?:f?boxed|f(?:rame)?box)\s?\{", re.IGNORECASE)
_ELEMENT = lazy_pattern(
    r"<!--(?:(?!-->).)*+(?P<comment>-->)?|<(?:(?P<name>style|script|template|title|del|strike)\b[^<>]{0,400}"
    r"|(?P<unseen>[a-z]\w{0,20})\b(?=[^<>]{0,400}(?:\shidden\b|display\s?:\s?none|visibility\s?:\s?hidden))[^<>]*)>"
    r"(?:(?!</(?:(?P=name)|(?P=unseen))\b).)*+(?P<closed></\w+\s*>)?",
    re.DOTALL | re.IGNORECASE,
)
_STRUCK = lazy_pattern(
    r"(?<!~)~~(?=[^\s~])[^~\n]{1,400}(?<!\s)~~(?!~)"
    r"|\\(?:[bx]?cancel|sout|xout|[hv]?phantom)\s?\{(?:[^{}]|\{[^{}]*+\}){0,400}+\}"
)
_NAMES = (
    r"(?:\w{1,20}[:_])?(?:think(?:ing)?|thoughts?|reason(?:ing)?|scratch_?pad|rationale|analysis|cot"
    r"|chain_of_thought|inner_thoughts|internal_monologue|monologue|(?:self_?)?reflections?|(?:self_?)?critique"
    r"|plan(?:ning)?|brainstorm(?:ing)?|deliberation|working(?:_out)?|draft)(?:_never_used_\w{1,40})?"
)
_ENDS = (
    (rf"</{_NAMES}\s?>", "most models: <think>, <thinking>, <reasoning>, <reflection>, <seed:think>, <longcat_think>"),
    (rf"\[/{_NAMES}\]", "Magistral: [THINK]"),
    (rf"\u25c1/{_NAMES}\u25b7", "Kimi: \u25c1think\u25b7"),
    (rf"<\|/{_NAMES}\|>", "<|think|>, closed as a tag"),
    (r"<\|(?:end_(?:of_)?(?:think(?:ing)?|thought|reasoning)|(?:think(?:ing)?|thought|reasoning)_end)\|>", "Cohere"),
    (r"<[|\uff5c]end\u2581of\u2581thinking[|\uff5c]>", "the same in the spelling of DeepSeek's tokens"),
    (r"<\|(?:start_response|begin_of_solution|start_of_solution)\|>", "Cohere, Sky-T1: where the answer begins"),
    (r"<end_working_out>", "the layout of Unsloth's notebooks"),
    (r"<channel\|>", "Gemma 4: <|channel>thought"),
    (r"<(?:unused|ctrl)95>", "Gemma: <unused94>thought"),
    (r"\[unused17\]", "Pangu: [unused16]"),
    (r"<\|channel\|>final\b[^<>\n]{0,40}(?:<\|constrain\|>[^<>\n]{0,40})?<\|message\|>", "gpt-oss"),
    (r"<\|content\|>", "Solar Open: <|end|><|begin|>assistant<|content|>"),
    (r"\[BEGIN FINAL RESPONSE\]", "Apriel"),
)
_END = lazy_pattern("|".join(form for form, _models in _ENDS), re.IGNORECASE)
_UNMARKED = (
    ("analysis", "assistantfinal"),  # gpt-oss, decoded without its special tokens
    ("Here is my thought process:", "Here is my response:"),  # Granite
)
"""How a text without marks opens its reasoning, and what then ends it."""


def visible(text: str) -> str:
    """Returns a text with a blank for each comment, hidden element and struck passage."""
    if "<" in text:
        text = _ELEMENT.sub(lambda match: " " if match["comment"] or match["closed"] else match[0], text)
    return _STRUCK.sub(" ", text) if "~~" in text or "\\" in text else text


def reasoning_end(text: str) -> int:
    """Returns where the reasoning of a text ends: behind the last mark that ends one, 0 where there is none."""
    end = max((mark.end() for mark in _END.finditer(text)), default=0)
    for opening, closing in _UNMARKED:
        if closing in text and text.lstrip().startswith(opening):
            end = max(end, text.rfind(closing) + len(closing))
    return end


def text_answer(completion: str) -> str | None:
    """Returns the last explicit answer (`<answer>`, `<SOLUTION>` or `\\boxed{}`, closed or not), stripped.

    The reasoning itself is read only when nothing follows it. Without an explicit form, returns the last line that is
    not blank, or None. Only the last 200,000 characters are read.
    """
    explicit, text = _answer_and_text(completion)
    return explicit or text.rpartition("\n")[2].strip() or None


def explicit_answer(completion: str) -> str | None:
    """Returns the same, but None where there is no explicit form."""
    return _answer_and_text(completion)[0]


def answer_text(completion: str) -> str | None:
    """Returns the same, but all that follows the reasoning, of however many lines, where there is no explicit form."""
    explicit, text = _answer_and_text(completion)
    return explicit or text or None


def without_end_tokens(text: str) -> str:
    """Removes end-of-turn tokens such as `<|im_end|>` at the end; mends or drops a cut-off closing tag."""
    if text.endswith(">"):
        text = text[:-200] + _END_TOKENS.sub("", text[-200:])
    if "</" not in text:
        return text
    text = _UNFINISHED.sub(r"</\1>", text)
    return text if text.endswith(">") else text[:-20] + _CUT_OFF.sub("", text[-20:])


def text_after_answer(completion: str) -> str:
    """Returns what follows the last explicit answer, without tags; "" where there is none."""
    part = _part(completion)
    content = _explicit(part)
    if content is None:
        return ""
    return _TAG.sub(" ", part[part.rfind(content) + len(content) :]).strip(" }$\t\n")


def shortened(text: str) -> str:
    """Returns the beginning and the end of a text of more than 200 characters, stripped, for messages."""
    text = text.strip()
    return text if len(text) <= 200 else text[:100] + " ... " + text[-95:]


def _answer_and_text(completion: str) -> tuple[str | None, str]:
    """The last explicit answer, and the text after the reasoning; both empty if it ends in an empty block or box."""
    part = _part(completion)
    explicit = _explicit(part)
    return explicit, "" if explicit is None and _EMPTY.search(part) else part


def _part(completion: str) -> str:
    text = without_end_tokens(visible(completion.strip()[-_READ:]).strip())
    split = reasoning_end(text)
    return text[split:].strip() or text[:split].strip()


def _explicit(text: str) -> str | None:
    end = len(text)
    for mark in reversed(list(_OPENING.finditer(text))):
        inside = text[mark.end() : end]
        content = (to_brace(inside) if mark[1] is None else _to_closing(inside, mark[1])).strip()
        if content:
            return content
        end = mark.start()
    return None


def _to_closing(inside: str, tag: str) -> str:
    closing = re.search(rf"</{tag}\s*>", inside, re.IGNORECASE)
    return inside[: closing.start()] if closing else inside


def to_brace(inside: str) -> str:
    """Returns what stands before the brace that closes one before the text; all of it without one."""
    depth = 1
    for brace in re.finditer(r"[{}]", inside):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return inside[: brace.start()]
    return inside
