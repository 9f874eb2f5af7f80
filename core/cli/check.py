"""Runs `grpo plugins check`: prints a report for each plugin; exit code 1 for an error."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import threading
from collections.abc import Callable, Iterator

import click

from grpo.core.check.report import Finding, Report, Severity
from grpo.core.cli.show import find_plugin, hits_of
from grpo.plugins.errors import GrpoError, NotInstalled, OptionError, SandboxUnavailable, UsageError, with_article
from grpo.plugins.host import Host, Registration
from grpo.plugins.specs import KINDS, Kind

STYLES: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "note": "cyan"}
QUIET = 5.0  # seconds after which a check of an environment says that it goes on


@click.command()
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Check every installed plugin.")
@click.option("--env", metavar="SPEC", help="Call a reward or verifier on its rows.  [default: gsm8k, without cases]")
@click.option("--json", "as_json", is_flag=True, help="Print the reports as one JSON list.")
@click.pass_context
def check(ctx: click.Context, name: str | None, everything: bool, env: str | None, as_json: bool) -> None:
    """Check a plugin: try the relations that must hold for every plugin of its kind.

    NAME is [kind:]SPEC, for example proximity, reward:proximity:table=qwen3_4b or ./file.py:function. The exit code is
    1 if there is an error.
    """
    if (name is None) != everything:
        raise UsageError("name one plugin, as in: grpo plugins check proximity; or check them all with --all.")
    if env is not None and name is None:
        raise UsageError("--env is for one reward or verifier: name it, and leave --all out.")
    host = Host.discover()
    reports = []
    pending = _all(host) if name is None else _named(host, name, env)
    while (report := _next(pending)) is not None:
        reports.append(report)
        if not as_json:
            _print(report)
    if as_json:
        click.echo(json.dumps([report.as_json() for report in reports], indent=2))
    ctx.exit(0 if all(report.ok for report in reports) else 1)


def _next(reports: Iterator[Report]) -> Report | None:
    """Returns the next report; what plugins print meanwhile goes to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        return next(reports, None)


def _named(host: Host, name: str, env: str | None) -> Iterator[Report]:
    prefix, colon, rest = name.partition(":")
    if colon and prefix in KINDS:
        yield _checked(host, prefix, rest, env)
        return
    kinds = [hit.kind for hit in hits_of(host, name)[0]]
    if not kinds:
        find_plugin(host, name)  # says what is wrong with the name
    reports: list[Report] = []
    refusals: list[OptionError] = []
    for kind in kinds:
        try:
            reports.append(_checked(host, kind, name, env))
        except OptionError as error:
            refusals.append(error)
    if refusals and not reports:
        raise refusals[0]
    yield from reports


def _all(host: Host) -> Iterator[Report]:
    for problem in host.problems:
        if problem.state in ("broken", "misspelt", "invalid"):
            fault = Finding("error", problem.state, f"entry point '{problem.entry_point}': {problem.line}")
            yield Report(f"package {problem.distribution}", (fault,), ())
    for known in host.registrations():
        try:
            yield _checked(host, known.kind, f"{known.distribution}/{known.spec.name}")
        except (NotInstalled, OptionError) as error:
            yield _skipped(known, str(error))
        except GrpoError as error:
            yield _skipped(known, str(error), "error")


def _checked(host: Host, kind: Kind, spec: str, env: str | None = None) -> Report:
    """Checks a plugin; each kind loads its own modules, because those of losses and advantages need torch."""
    given: dict[str, object] = {}
    if kind in ("reward", "verifier"):
        given["env"] = env
    elif env is not None:
        raise UsageError(f"--env is for rewards and verifiers, and '{spec}' is {with_article(kind)}. Leave it out.")
    elif kind in ("sandbox", "session"):
        given["attacks"] = ()
    module = importlib.import_module(f"grpo.core.check.{'reward' if kind == 'verifier' else kind}")
    if kind == "agent":
        click.echo(f"playing two episodes side by side, of at most {module.SECONDS:g} s ...", err=True)
    check_plugin: Callable[..., Report] = getattr(module, f"check_{kind}")
    note = f"still checking {spec}, for a minute at most ..."
    slow = threading.Timer(QUIET, click.echo, [note], {"err": True})
    slow.daemon = True
    if kind == "env":
        slow.start()
    try:
        return check_plugin(getattr(host, kind)(spec), **given)
    except SandboxUnavailable as error:
        if kind not in ("sandbox", "session"):
            raise
        return _skipped(host.find(kind, spec), str(error))
    finally:
        slow.cancel()


def _skipped(known: Registration, why: str, severity: Severity = "note") -> Report:
    return Report(f"{known.kind} {known.spec.name}", (Finding(severity, "not checked", why),), ())


def _print(report: Report) -> None:
    if not sys.stdout.isatty():
        click.echo(str(report))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for number, (severity, line) in enumerate(report.lines()):
        style = STYLES[severity] if severity else ("bold" if number == 0 else "dim")
        console.print(Text(line, style=style), soft_wrap=True)
