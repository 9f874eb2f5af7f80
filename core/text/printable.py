"""Makes text from models, datasets and plugins safe to print: escape sequences go, line ends and tabs stay."""

from __future__ import annotations

import re
from collections.abc import Sequence

# No start is part of another sequence: of many starts without an end, each would else be read to the end of the text.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x9c|\x1b\\)"  # OSC: titles, links
    r"|\x1b[ -/]*[0-~]"  # the short ones, and the start of one that never ends: the text after it stays
)
# C0 but tab and newline, DEL, C1, bidirectional overrides and isolates, surrogates.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Returns the text without escape sequences and control characters; "\r\n" and a lone "\r" become "\n"."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("", text)


def encodable(text: str) -> str:
    """Returns the text with "?" for halves of surrogate pairs (from JSON), which UTF-8 and tokenizers refuse."""
    return text.encode("utf-8", "replace").decode("utf-8")


def one_line(text: str, width: int = 100) -> str:
    """Returns the printable text on one line, cut to `width` characters with an ellipsis."""
    line = " ".join(printable(text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def shortened(text: str, width: int) -> str:
    """Returns the text as it is, cut to `width` characters with three dots."""
    return text if len(text) <= width else text[: width - 3] + "..."


def aligned(rows: Sequence[Sequence[str]], *, right: bool = False) -> list[str]:
    """Returns rows as lines with their cells in columns; `right`: to the right, but for the first column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [
            cell.rjust(width) if right else cell.ljust(width) for cell, width in zip(others, widths[1:], strict=True)
        ]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return lines


def counted(count: int, noun: str) -> str:
    """Returns the count and its noun, which gets an "s" unless there is one of it."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
