"""Finds the program in a completion; None where there is none.

A fenced block wins: of the blocks in Python or without a language, the last that defines what is asked for; else the
last that names Python, as one without a language is often sample output. Earlier blocks that define what it uses go
with it. Without a fence the text after the reasoning is the program, without what follows it. Linear in the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from grpo.rewards.answer_text import reasoning_end
from grpo.rewards.code.program_parts import opened_by_prompt, with_parts, without_tail

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([^\n`]*)$", re.MULTILINE)
_PYTHON = frozenset({"python", "py", "python3", "py3", "python2", "pycon", "ipython", "sage", ""})
_METHOD = re.compile(r"^[ \t]+(?:async[ \t]+)?def[ \t]+(\w+)", re.MULTILINE)
_DEEPEST_MARGIN, _LONGEST_END = 3, 200
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_INLINE = re.compile(r"\s*`{1,3}(?:python3?[ \t]+)?([^`\n]+)`{1,3}\s*")
_MARKED = re.compile(r"\[(PYTHON|BEGIN)\]\n(.*?)(?:\[(?:/PYTHON|DONE)\]|\Z)", re.DOTALL)
_END_TOKENS = re.compile(r"(?:\s*(?:<\|[a-z_]{1,30}\|>|</s>|<eos>|<end_of_turn>))+\s*\Z")


def program_of(completion: str, *wanted: str) -> str | None:
    """Returns the program of a completion; `wanted`: functions and classes to define, or methods of `Solution`."""
    wanted = tuple(filter(None, wanted))
    text = completion.replace("\r\n", "\n")
    text = text[:-_LONGEST_END] + _END_TOKENS.sub("\n", text[-_LONGEST_END:])
    text = text[reasoning_end(text) :]
    head = opened_by_prompt(text)
    if head is not None and (not wanted or head[:1] in (" ", "\t") or _defined(head, wanted)):
        return head
    blocks = list(fenced_blocks(text))
    if not any(body.strip() for language, body in blocks if language in _PYTHON):
        blocks = list(_loose_blocks(text)) or blocks
    if blocks:
        usable = [(language, body) for language, body in blocks if language in _PYTHON]
        most = max((_defined(body, wanted) for _, body in usable), default=0)
        defining = [body for _, body in usable if most and _defined(body, wanted) == most]
        named = [body for language, body in usable if language]
        chosen = (defining or named or [body for _, body in usable] or [""])[-1]
        chosen = with_parts(chosen, [body for _, body in usable])
    else:
        answers = _ANSWER.findall(text) if text.count("<answer>") == 1 else []
        inline = _INLINE.fullmatch(text)
        text = inline[1] if inline else text
        marked = _MARKED.findall(text) if "[PYTHON]" in text or "[BEGIN]" in text else []
        chosen = answers[-1].strip("\n") if answers else marked[-1][1] if marked else without_tail(text, wanted)
    chosen = chosen.removeprefix("\ufeff")
    return chosen if chosen.strip() else None


def fenced_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yields the language, in lower case, and the body of each fenced block; the last may lack its end."""
    opened: re.Match[str] | None = None
    within: re.Match[str] | None = None
    for match in _FENCE.finditer(text):
        fence, language = match[1], match[2].strip()
        if opened is None:
            opened = match
        elif fence[0] != opened[1][0] or len(fence) < len(opened[1]) or language:
            continue
        elif _margin(match) > _margin(opened) + _DEEPEST_MARGIN:
            within = within or match  # the example of a docstring, or an end that is set in
        else:
            yield _language(opened), _body(opened, text[opened.end() + 1 : match.start()])
            opened = within = None
    if opened is not None:
        rest = text[opened.end() + 1 : within.start() if within else len(text)]
        if rest.rstrip().endswith(opened[1]):  # the end stands behind the last line
            rest = rest.rstrip().removesuffix(opened[1])
        yield _language(opened), _body(opened, rest)


def _loose_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yields language and body of blocks whose fences stand within lines; only those that name Python."""
    for part in text.split("```")[1::2]:
        language, _, body = part.partition("\n")
        if language.strip().lower() in _PYTHON - {""} and body.strip():
            yield language.strip().lower(), body


def _margin(fence: re.Match[str]) -> int:
    return len(fence[0]) - len(fence[0].lstrip(" \t"))


def defines(program: str, name: str) -> bool:
    """Returns whether a program defines a global of that name, as far as a search can tell."""
    if not name.isascii():
        program = unicodedata.normalize("NFKC", program)  # as Python reads names
    word = re.escape(name)
    pattern = rf"^(?:(?:async[ \t]+)?def|class)[ \t]+{word}\b|^{word}[ \t]*(?::[^=\n]*)?=(?!=)"
    return re.search(pattern, program, re.MULTILINE) is not None


def _defined(program: str, wanted: tuple[str, ...]) -> int:
    """How many of the names a program defines, as globals or as methods of `Solution`."""
    methods = set(_METHOD.findall(program)) if defines(program, "Solution") else set()
    return sum(bool(name) and (name in methods or defines(program, name)) for name in wanted)


def _body(opened: re.Match[str], text: str) -> str:
    """The text of a block without the indentation that it shares with its fence."""
    blanks = opened[0][: len(opened[0]) - len(opened[0].lstrip(" \t"))]
    lines = text.split("\n")
    if not blanks or not all(line.startswith(blanks) or not line.strip() for line in lines):
        return text
    return "\n".join(line.removeprefix(blanks) for line in lines)


def _language(opened: re.Match[str]) -> str:
    return opened[2].strip().split(" ")[0].strip("{}.:").lower()
