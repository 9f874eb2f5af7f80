"""Runs `grpo serve-mcp`: offers the tasks of an environment to an MCP client."""

from __future__ import annotations

import click

from grpo.core.cli import options


@click.command(name="serve-mcp")
@click.argument("env", metavar="SPEC")
@options.split
@click.option("--size", type=options.AT_LEAST_ONE, help="Only the first N tasks. Default: all.")
@options.rewards
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=60.0, help="Limit of one call of the environment. Default: 60."
)
def serve_mcp(env: str, split: str, size: int | None, rewards: tuple[str, ...], seconds: float) -> None:
    """Offer the tasks of an environment as an MCP server over stdin and stdout.

    A client calls `reset` for a task, the environment's own tools, and `submit` with an answer or a move. The last
    answer has the score. SPEC is an environment with its options, for example gsm8k:level=easy.
    """
    import asyncio
    import contextlib
    import sys

    from grpo.core.env.episodes import UNBOUNDED, episodes_of
    from grpo.core.env.mixture import refuse_missing_columns
    from grpo.core.env.processes import starting_place
    from grpo.core.measure.served_env import ServedEnv, refuse_clashes, serve
    from grpo.plugins.host import Host
    from grpo.plugins.mcp.servers import refuse_missing_package

    refuse_missing_package("grpo serve-mcp")
    with contextlib.redirect_stdout(sys.stderr):
        host = Host.discover()
        bound = host.env(env).settled()
        chosen = host.rewards(rewards) if rewards else host.default_rewards(bound)
        verifier = host.default_verifier(bound)
        place = starting_place(bound, 0, seconds)
        episodes = episodes_of(bound, split, limit=size, unbounded=UNBOUNDED, opened=place)
        refuse_missing_columns(episodes[0], [*chosen, *([verifier] if verifier else [])])
        refuse_clashes(episodes[0].tools, bound.name)
        click.echo(f"serving {len(episodes)} tasks of {bound.name} over MCP on stdin and stdout", err=True)
    with ServedEnv(bound, episodes, chosen, verifier, seconds) as served:
        asyncio.run(serve(served, bound.name))
