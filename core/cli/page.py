"""Prints untrusted text so that it cannot be mistaken for a line of the command itself."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from grpo.core.text.printable import printable

if TYPE_CHECKING:
    from rich.text import Text


@dataclass(frozen=True, slots=True)
class Kind:
    """What a part of a page is."""

    lead: str  # what each of its lines begins with
    quoted: bool = False  # it is a text of somebody else, which stands in a box on a terminal
    indent: int = 0  # columns before the lead

    def within(self, depth: int) -> Kind:
        """Returns the same, that many levels deeper."""
        return replace(self, indent=self.indent + 4 * depth)


LINE, QUOTED, DETAIL = Kind(""), Kind("  | ", quoted=True), Kind("    ")
Part = tuple[Kind, "Text"]


def line(text: str, style: str = "") -> Part:
    """Returns a line of our own."""
    from rich.text import Text

    return LINE, Text(text, style=style)


def quoted(text: str, style: str = "") -> Part:
    """Returns a text from outside, quoted."""
    from rich.text import Text

    return QUOTED, Text(printable(text).strip("\n") or "(empty)", style=style)


def print_page(page: Iterable[Part]) -> None:
    """Prints the parts of a page as they come."""
    if not sys.stdout.isatty():
        for kind, text in page:
            lead = " " * kind.indent + kind.lead
            click.echo("\n".join(f"{lead}{line}".rstrip() for line in text.plain.split("\n")))
        return
    from rich.console import Console
    from rich.padding import Padding
    from rich.panel import Panel

    console = Console(highlight=False)
    for kind, text in page:
        block: Any = Panel(text, border_style="dim") if kind.quoted else text
        left = kind.indent + (0 if kind.quoted else len(kind.lead))
        console.print(Padding(block, (0, 0, 0, left)) if left else block)
