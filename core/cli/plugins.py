"""Implements `grpo plugins`: lists plugins and what is wrong with them, as a table or JSON, or shows one in full."""

from __future__ import annotations

import gc
from dataclasses import asdict

import click

from grpo.core.cli.lazy import LazyGroup
from grpo.core.cli.table import print_table
from grpo.plugins._host.names import clash_of
from grpo.plugins._host.probe import forget
from grpo.plugins.host import Host, Registration
from grpo.plugins.specs import KINDS

HEADINGS = ("kind", "name", "version", "distribution", "state", "description")

LATER = {
    "check": "grpo.core.cli.check:check",
    "new": "grpo.core.cli.new:new",
    "validate": "grpo.core.cli.validate:validate",
}


@click.group(cls=LazyGroup, later=LATER, invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: plugins and problems.")
@click.option("--again", is_flag=True, help="Load all packages again, ignoring cached results.")
@click.option("-v", "--verbose", is_flag=True, help="Print the traceback of every broken plugin.")
@click.pass_context
def plugins(ctx: click.Context, as_json: bool, again: bool, verbose: bool) -> None:
    """List the installed plugins; show, check, validate or create one.

    GRPO_PLUGINS=a,b restricts the list to those entry points or distributions.
    """
    if ctx.invoked_subcommand is not None:
        return
    if again:
        forget()
    host = Host.discover()
    if as_json:
        import json

        click.echo(json.dumps(listing(host), indent=2))
    else:
        print_table(
            HEADINGS,
            rows(host),
            long=(5,),
            state=4,
            style=lambda state: "green" if state == "ok" else "red",
            unless_alike=(2, 3, 4),
            under=0,
        )
        if verbose:
            for problem in host.problems:
                if problem.traceback:
                    click.echo(f"\n{problem.distribution} ({problem.entry_point}):\n{problem.traceback.rstrip()}")
        elif any(problem.traceback for problem in host.problems):
            click.echo("\nSee the tracebacks with: grpo plugins --verbose", err=True)
    gc.freeze()  # all of it lasts until the process ends, so the collector need not go through it on the way out


@plugins.command()
@click.argument("name")
def show(name: str) -> None:
    """Show one plugin: its documentation, options, columns, range and cases.

    NAME is [kind:][dist/]name, for example proximity or reward:proximity, or ./file.py:function.
    """
    from grpo.core.cli.show import described, find_plugin

    host = Host.discover()
    click.echo("\n".join(described(host, find_plugin(host, name))))


def listing(host: Host) -> dict[str, list[dict[str, object]]]:
    """Returns what `grpo plugins --json` prints."""
    return {
        "plugins": [
            {
                "kind": known.kind,
                "name": known.spec.name,
                "version": known.spec.version,
                "distribution": known.distribution,
                "distribution_version": known.distribution_version,
                "entry_point": known.entry_point,
                "state": "ok" if clash_of(host.problems, known) is None else "clash",
                "description": first_line(known.spec.doc),
            }
            for known in _ordered(host)
        ],
        "problems": [asdict(problem) for problem in host.problems],
    }


def rows(host: Host) -> list[tuple[str, ...]]:
    """Returns the rows of the table: the plugins by kind and name, then what is wrong with the others."""
    table: list[tuple[str, ...]] = []
    for known in _ordered(host):
        clash = clash_of(host.problems, known)
        table.append(
            (
                known.kind,
                known.spec.name,
                str(known.spec.version),
                known.distribution,
                "ok" if clash is None else "clash",
                first_line(known.spec.doc) if clash is None else clash.line,
            )
        )
    table.extend(
        ("-", problem.entry_point, "-", problem.distribution, problem.state, problem.line)
        for problem in host.problems
        if problem.state != "clash"
    )
    return table


def first_line(doc: str) -> str:
    """Returns the first line of a documentation text, or "" when there is none."""
    return doc.strip().partition("\n")[0]


def _ordered(host: Host) -> list[Registration]:
    return sorted(
        host.registrations(), key=lambda known: (KINDS.index(known.kind), known.spec.name, known.distribution)
    )
