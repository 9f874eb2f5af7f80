"""Runs `grpo run`: trains, from flags and files."""

from __future__ import annotations

import sys
from contextlib import ExitStack, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grpo.core.cli.flags import PanelOption, SettingsCommand, every_flag, given, named_by_flags, typed_as_settings
from grpo.core.config.schema import load_config
from grpo.core.processes.loading import loading
from grpo.plugins.errors import UsageError

if TYPE_CHECKING:
    from grpo.core.run.endings import RunSummary
    from grpo.core.run.ray.placement import Asked

_cluster_option = partial(click.option, cls=PanelOption, panel="Ray cluster")


def _print_schema(context: click.Context, option: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        import json

        from grpo.core.config.reference import json_schema

        click.echo(json.dumps(json_schema(), indent=2))
        context.exit()


@click.command(cls=SettingsCommand)
@every_flag
@click.option(
    "--print-schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON schema of configuration files.",
)
@click.option(
    "--resume",
    "resume_from",
    type=click.Path(path_type=Path),
    help="Continue this run; --steps N makes it longer, --server-url names moved servers.",
)
@_cluster_option("--on", "place", type=click.Choice(["ray"]), help="Run on a Ray cluster; see docs/scale.md.")
@_cluster_option("--ray-address", metavar="HOST:PORT", help="Address. Default: RAY_ADDRESS, or this machine's cluster.")
@_cluster_option("--workers", type=click.IntRange(min=1), help="Training processes. Default: 1.")
@_cluster_option("--servers", type=click.IntRange(min=1), help="Rollout servers (vLLM) to start.")
@_cluster_option("--nodes", type=click.IntRange(min=1), help="Machines. Default: as few as fit.")
@click.option("--dry-run", is_flag=True, help="Check everything, show the plan, train nothing.")
@click.option("--quiet", is_flag=True, help="Print warnings and errors only.")
def run(
    config_file: Path | None,
    pairs: tuple[str, ...],
    resume_from: Path | None,
    place: str | None,
    ray_address: str | None,
    workers: int | None,
    servers: int | None,
    nodes: int | None,
    dry_run: bool,
    quiet: bool,
    **values: Any,
) -> int:
    """Train a policy on an environment.

    Without --model it trains the embedded demonstration model: no network, no GPU, about a minute. --set and --config
    take every setting of docs/configuration.md.
    """
    flags = given(values)
    asked = _asked(place, ray_address, workers, servers, nodes)
    # A wrong configuration is refused before libraries load. A run that resumes has its own.
    config = load_config(config_file, pairs, flags) if resume_from is None else None
    with loading():
        from grpo.core.config.python_objects import refuse_missing
        from grpo.core.display.progress import Silent
        from grpo.core.display.terminal import display_for
        from grpo.core.policy.weights import run_config
        from grpo.core.processes.rank import is_first
        from grpo.core.record.run_dir import open_run_dir
        from grpo.core.run.job import resume, start
        from grpo.core.text.streams import lasting_output
        from grpo.plugins.host import Host

    with ExitStack() as others:
        if not dry_run:
            lost = "The run continues; follow it with `grpo runs` and `grpo show`."
            others.enter_context(lasting_output(lost))
        display = display_for(quiet=quiet) if is_first() else Silent()
        display.reworded = partial(named_by_flags, typed=typed_as_settings(pairs, config_file, values))
        results = sys.stdout
        others.enter_context(redirect_stdout(sys.stderr))  # what libraries and plugins print is no result
        try:
            if resume_from is not None:
                if set(flags) - {"train.steps", "rollout.server_url"} or pairs or config_file or dry_run:
                    raise UsageError(
                        "--resume continues a run with its own settings; leave the other options out, but for --steps, "
                        "its new number of steps, and --server-url, where its rollout servers are now."
                    )
                own = run_config(open_run_dir(resume_from))
                refuse_missing(own, resume_from, steps=flags.get("train.steps"))
                wished = load_config(None, [], {"env": own.env, **flags})
                url = wished.rollout.server_url if "rollout.server_url" in flags else None
                if asked is not None:
                    from grpo.core.run.ray.launch import resume_on_ray

                    if url is not None:
                        raise UsageError("--on ray starts its rollout servers itself: leave --server-url out.")
                    steps = wished.train.steps
                    return _exit_code(resume_on_ray(own, resume_from, steps, ray_address or "", asked, display))
                return _exit_code(resume(resume_from, Host.discover(), display, wished.train.steps, url))
            assert config is not None
            if asked is not None:
                from grpo.core.run.ray.launch import planned_on_ray, start_on_ray

                if dry_run:
                    for line in [*planned_on_ray(config, ray_address or "", asked), "dry run: nothing was trained"]:
                        click.echo(line, file=results)
                    return 0
                return _exit_code(start_on_ray(config, ray_address or "", asked, display))
            host = Host.discover()
            if dry_run:
                from grpo.core.run.job import dry_run as look

                look(config, host, display)
                return 0
            return _exit_code(start(config, host, display))
        finally:
            display.close()


def _asked(
    place: str | None, address: str | None, workers: int | None, servers: int | None, nodes: int | None
) -> Asked | None:
    from grpo.core.run.ray.placement import Asked

    if place is not None:
        return Asked(workers or 1, servers or 0, nodes)
    given_flags = {"--ray-address": address, "--workers": workers, "--servers": servers, "--nodes": nodes}
    alone = [name for name, value in given_flags.items() if value is not None]
    if alone:
        raise UsageError(f"{alone[0]} is for runs on a cluster. Add --on ray, or leave it out.")
    return None


def _exit_code(summary: RunSummary) -> int:
    return 130 if summary.status == "interrupted" else 0
