"""Prints a table: headings and rows in; aligned columns out in a pipe, and on a terminal what fits its width.

Where a terminal is too narrow for columns, each row becomes a line of its short cells and indented lines of the others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import click

ROOM = 72  # characters that the long columns need together to stand beside the others
GAP = 2


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    long: Sequence[int],
    state: int,
    style: Callable[[str], str],
) -> None:
    """Prints rows under their headings.

    Args:
        headings: of the columns.
        rows: a text for each column.
        long: the columns that may be wrapped.
        state: the column that is coloured.
        style: of a text in that column.
    """
    widths = [max(len(row[column]) for row in [headings, *rows]) for column in range(len(headings))]
    if not sys.stdout.isatty():
        for row in [headings, *rows]:
            click.echo("  ".join(map(str.ljust, row, widths)).rstrip())
        return
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = Console()
    needed = [min(width, ROOM // len(long)) if column in long else width for column, width in enumerate(widths)]
    if sum(needed) + GAP * len(needed) <= console.width:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column, heading in enumerate(headings):
            table.add_column(heading, overflow="fold", no_wrap=column not in long)
        for row in rows:
            table.add_row(*(Text(cell, style=style(cell) if at == state else "") for at, cell in enumerate(row)))
        console.print(table)
        return
    for row in rows:
        short = [(cell, style(cell) if at == state else "") for at, cell in enumerate(row) if at not in long]
        console.print(Text("  ").join(Text(cell, style=how) for cell, how in short))
        for column in long:
            label = f"{headings[column]}: " if len(long) > 1 else ""
            console.print(Padding(Text(f"{label}{row[column]}", style="dim"), (0, 0, 0, 4)))
