"""Runs `grpo plugins new`: writes the folder of a new plugin package."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from grpo.core.scaffold.package import distribution_of, package_files, write_package
from grpo.plugins.host import Host
from grpo.plugins.specs import KINDS, Kind


@click.command()
@click.argument("kind", type=click.Choice(KINDS), metavar="KIND")
@click.argument("name")
@click.option(
    "--dir",
    "parent",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Parent folder.  [default: here]",
)
def new(kind: Kind, name: str, parent: Path) -> None:
    """Create a plugin package: KIND is reward, verifier, env, sandbox, session, loss, advantage, sampler or agent.

    The package installs, passes its own tests and is listed by grpo plugins.
    """
    files = package_files(kind, name)
    folder = parent / distribution_of(kind, name)
    write_package(folder, files)
    identifier = name.replace("-", "_")
    for path in files:
        click.echo(str(folder / path))
    taken = [known.distribution for known in Host.discover().registrations(kind) if known.spec.name == identifier]
    if taken:
        click.echo(
            f"note: {taken[0]} offers the {kind} '{identifier}' too; the new one is {folder.name}/{identifier}",
            err=True,
        )
    click.echo(f"\nNext: pip install -e {shlex.quote(str(folder))} && grpo plugins check {kind}:{identifier}")
