"""Text that a model wrote, quoted for another model: any text in, lines out that cannot be taken for anything else.

Every line of the quotation starts with "| ", so none can be a heading, a delimiter or a turn of its own. Characters
that cannot be seen and pieces that a tokenizer may take for its control tokens are written out as `\\u{...}`: what is
hidden shows, and what would end a turn does not. The rest stays as it is.
"""

from __future__ import annotations

import re
import unicodedata

BAR = "| "
_HIDDEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}
_BARS = "|\uff5c"
_TOKEN_NAMES = (
    r"s|bos|eos|pad|unk|mask|cls|sep|sop|eop|eod|eot|"
    r"(?:start|end|begin|bos|eos)_of_\w{1,20}|\w{1,20}_of_(?:turn|text|sentence|sequence)|"
    r"image|img|audio|video|extra_id_\d{1,4}|reserved\w{0,20}|unused\d{0,4}"
)
_BRACKETS = r"INST|SYS|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_\w{1,12}|IMG\w{0,8}|gMASK|s?MASK|CLS|SEP|PAD|UNK|EOS|BOS"
_CONTROL = re.compile(
    rf"<(?=[{_BARS}])|(?<=[{_BARS}])>|<(?=/?(?:{_TOKEN_NAMES})\s?/?>)|<(?=</?SYS>>)|<(?=/?SYS>>)"
    rf"|\[(?=/?(?:{_BRACKETS})\])",
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
