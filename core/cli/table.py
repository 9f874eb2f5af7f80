"""Prints a table: aligned columns in a pipe, and on a terminal what fits its width."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Collection, Sequence

import click

from grpo.core.text.printable import aligned

LEAST = 30  # characters that a long column needs to stand beside the others
GAP = 2
INDENT = 4


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    long: Collection[int],
    state: int,
    style: Callable[[str], str],
    unless_alike: Collection[int] = (),
    under: int | None = None,
) -> None:
    """Prints rows under their headings.

    `long`: columns that may be wrapped. `unless_alike`: columns that a terminal omits where all rows have the same
    text. `under`: a column whose texts are titles on a terminal, each over the rows that follow with the same text.
    """
    if not sys.stdout.isatty():
        click.echo("\n".join(aligned([headings, *rows])))
        return
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    def columns(numbers: Sequence[int], lines: Sequence[Sequence[Text]], *, header: bool) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold", show_header=header)
        for column in numbers:
            width = None if column in long else widths[column]
            table.add_column(headings[column], overflow="fold", no_wrap=column not in long, min_width=width)
        for line in lines:
            table.add_row(*(line[column] for column in numbers))
        return table

    widths = [max(len(row[column]) for row in [headings, *rows]) for column in range(len(headings))]
    console = Console(highlight=False)
    idle = [at for at in unless_alike if len({row[at] for row in rows}) == 1]
    shown = [at for at in range(len(headings)) if at not in idle and at != under]
    first, *others = shown
    short = [column for column in others if column not in long]
    blocks: list[tuple[Text, list[list[Text]]]] = []  # each with its title
    for name, own in itertools.groupby(rows, lambda row: "" if under is None else row[under]):
        block = [[Text(cell, style=style(cell) if at == state else "") for at, cell in enumerate(row)] for row in own]
        blocks.append((Text(name, style="bold cyan"), block))
    needed = [min(widths[column], LEAST) if column in long else widths[column] for column in shown]
    if sum(needed) + GAP * (len(shown) - 1) <= console.width:
        lines: list[Sequence[Text]] = []
        for title, block in blocks:
            if under is not None:
                lines += [[Text()] * len(headings), [title if at == first else Text() for at in range(len(headings))]]
            lines += block
        console.print(columns(shown, lines, header=True))
        return
    # Rich would leave out what is beyond the edge.
    aside = short if INDENT + sum(widths[column] + GAP for column in short) - GAP <= console.width else []
    console.print(Text(headings[first], style="bold"))
    if aside:
        console.print(Padding(columns(aside, [], header=True), (0, 0, 0, INDENT)))
    for title, block in blocks:
        if under is not None:
            console.print(Text("\n") + title)
        for line in block:
            console.print(line[first])
            if aside:
                console.print(Padding(columns(aside, [line], header=False), (0, 0, 0, INDENT)))
            named = (Text(f"{headings[at]} ", style="dim") + line[at] for at in others if at not in aside)
            console.print(Padding(Text("  ").join(named), (0, 0, 0, INDENT)))
