"""Quotes text that a model wrote for another model, so that no line can be taken for anything else.

Every line of the quotation starts with "| ", so none can be a heading, a delimiter or a turn of its own. Characters
that cannot be seen and pieces that a tokenizer may take for its control tokens are written out as `\\u{...}`: what is
hidden shows, and what would end a turn does not. The rest stays as it is.
"""

from __future__ import annotations

import re
import unicodedata

BAR = "| "
_HIDDEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}
_LESS, _MORE, _BARS, _OPEN = "<\uff1c\ufe64", ">\uff1e\ufe65", "|\uff5c", r"\[\uff3b"
_WORD = r"[\w:.\u2581-]{0,40}"  # some tokens have a block for a space
# What chat templates and tokenizers of open models write between angle brackets, beside what has a bar there.
_TOKEN_NAMES = (
    rf"{_WORD}(?:think|tool|function|im_start|im_end|_of_|fim[_-]|\u2581){_WORD}|"
    r"s|bos|eos|pad|unk|mask|cls|sep|sop|eop|eod|eot|eom|thoughts?|scratchpad|invoke|parameters?|arg_(?:key|value)|args|"
    r"image|img|audio|video|im_\w{1,20}|(?:start|end|begin|bos|eos)_\w{1,20}|(?:extra|reserved|unused|special|mask)_?\w{0,20}|"
    r"(?:gh|issue|jupyter|repo|file|commit|pr|intermediate)_\w{1,30}|\w{1,20}_(?:token|start|end|sep|pad)|0x[0-9a-f]{2}|"
    r"(?-i:system|user|assistant|human|bot|model|developer|observation|ipython|\u7528\u6237|AI)"
)
_BRACKETS = (
    r"INST|SYS|THINK|ARGS|CALL|PREFIX|SUFFIX|MIDDLE|REF|AUDIO|TRANSCRIBE|IMG\w{0,8}|gMASK|s?MASK|CLS|SEP|PAD|UNK|EOS|BOS|"
    r"(?-i:[A-Z]{2,20}(?:_[A-Z0-9]{1,20}){1,4})|control_\d{1,4}|unused\d{1,4}"
)
_CONTROL = re.compile(
    rf"[{_LESS}](?=[{_BARS}])|(?<=[{_BARS}])[{_MORE}]"
    rf"|[{_LESS}](?=\s?/?\s?(?:{_TOKEN_NAMES})(?:[\s=/][^<>\n]{{0,200}})?[{_MORE}])"
    rf"|[{_LESS}](?=[{_LESS}]/?SYS[{_MORE}]{{2}})|[{_LESS}](?=/?SYS[{_MORE}]{{2}})"
    rf"|[{_OPEN}](?=/?(?:{_BRACKETS})[\]\uff3d])|\](?=~!?b[\[\]])|\[(?=e~\[)",
    re.IGNORECASE,
)
_ODD = re.compile(r"[^\x20-\x7e\n\t]")


def quoted(text: str) -> str:
    """Returns the quotation: lines that each start with "| "; line ends of any kind become LF."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _CONTROL.sub(lambda match: _written_out(match[0]), _ODD.sub(_shown, text))
    return "\n".join(f"{BAR}{line}" for line in text.split("\n"))


def _shown(match: re.Match[str]) -> str:
    character = match[0]
    hidden = unicodedata.category(character) in _HIDDEN or _is_variation_selector(character)
    return _written_out(character) if hidden else character


def _is_variation_selector(character: str) -> bool:
    return "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"


def _written_out(character: str) -> str:
    return f"\\u{{{ord(character):x}}}"
