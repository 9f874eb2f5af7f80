"""Runs `grpo watch`: serves pages of runs to a browser until it is stopped."""

from __future__ import annotations

from pathlib import Path

import click

RUNS = Path("runs")


@click.command()
@click.argument("path", metavar="[RUN]", type=click.Path(path_type=Path), default=RUNS)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of this machine. Default: any free one.")
@click.option("--edit", is_flag=True, help="Let the page tag, note, hide and delete runs.")
def watch(path: Path, port: int, edit: bool) -> None:
    """Follow RUN, or all runs of a folder (default: runs), in a browser.

    It answers only this machine, and only at the printed address. Ctrl-C ends it.
    """
    from grpo.core.watch.folder import WatchedFolder
    from grpo.core.watch.server import WatchServer

    with WatchServer(WatchedFolder(path), port, edit=edit) as server:
        click.echo(server.link)
        click.echo("Open this link on this machine; Ctrl-C ends.", err=True)
        try:
            server.wait()
        except KeyboardInterrupt:
            click.echo("", err=True)
