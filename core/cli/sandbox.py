"""Implements `grpo sandbox`: runs a program in a sandbox, checks a sandbox, and removes what crashed runs left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from grpo.core.text.printable import printable
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host
from grpo.plugins.sandbox_job import Job, JobResult, Limits, SandboxPool
from grpo.plugins.session import SessionPool

PROFILES = {".py": "python", ".c": "c", ".js": "javascript"}
_DEFAULT = Limits()


@click.group()
def sandbox() -> None:
    """Run a program in a sandbox, attack a sandbox, or clean up after a crash."""


_backend = click.option("--backend", default="local", metavar="SPEC", help="Sandbox. Default: local.")
_as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def _limit(name: str, kind: click.ParamType[Any], default: float, unit: str, text: str) -> Callable[[Any], Any]:
    return click.option(name, type=kind, default=default, metavar=unit, show_default=True, help=text)


@sandbox.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--stdin",
    "stdin_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What the program reads from standard input.",
)
@_backend
@click.option("--profile", metavar="NAME", help="Language. Default: by the file's ending, else python.")
@_limit("--cpu", click.FloatRange(min=0.01), _DEFAULT.cpu_seconds, "SECONDS", "Processor time.")
@click.option(
    "--wall", type=click.FloatRange(min=0.01), metavar="SECONDS", help="Wall time. Default: twice --cpu plus one."
)
@_limit("--memory", click.IntRange(min=16), _DEFAULT.memory_bytes >> 20, "MB", "Memory, in mebibytes.")
@_limit("--output", click.IntRange(min=1), _DEFAULT.output_bytes >> 10, "KB", "Output, in kibibytes.")
@_limit("--disk", click.IntRange(min=1), _DEFAULT.disk_bytes >> 20, "MB", "Files that it writes, in mebibytes.")
@_limit("--processes", click.IntRange(min=1), _DEFAULT.processes, "N", "Processes and threads.")
@_as_json
@click.pass_context
def run(
    ctx: click.Context,
    file: Path,
    stdin_file: Path | None,
    backend: str,
    profile: str | None,
    cpu: float,
    wall: float | None,
    memory: int,
    output: int,
    disk: int,
    processes: int,
    as_json: bool,
) -> None:
    """Run the program FILE in a sandbox and print what happened to it.

    The exit code is 1 only if the sandbox itself failed.
    """
    limits = Limits(
        cpu_seconds=cpu,
        wall_seconds=2 * cpu + 1 if wall is None else wall,
        memory_bytes=memory << 20,
        output_bytes=output << 10,
        disk_bytes=disk << 20,
        processes=processes,
    )
    try:
        program = file.read_bytes().decode("utf-8", "surrogateescape")
        stdin = stdin_file.read_bytes() if stdin_file else b""
    except OSError as error:
        raise UsageError(f"cannot read '{error.filename}': {error.strerror}.") from error
    job = Job(program, stdin, limits=limits, profile=profile or PROFILES.get(file.suffix, "python"))
    pool: SandboxPool = Host.discover().sandbox(backend).make()
    try:
        [result] = asyncio.run(pool.run([job]))
    finally:
        pool.close()
    click.echo(json.dumps(as_values(result), indent=2) if as_json else _described(result))
    ctx.exit(1 if result.trouble else 0)


@sandbox.command()
@click.option("--backend", metavar="SPEC", help="Sandbox. Default: local, unless a session is named.")
@click.option("--session", metavar="SPEC", help="Session to attack instead of a sandbox.")
@_as_json
@click.pass_context
def check(ctx: click.Context, backend: str | None, session: str | None, as_json: bool) -> None:
    """Attack a sandbox or a session: run hostile programs and programs of known result.

    The exit code is 1 if a relation that matters does not hold.
    """
    from grpo.core.check.sandbox import check_sandbox
    from grpo.core.check.session import check_session

    _refuse_both(backend, session)
    report = check_session(session) if session is not None else check_sandbox(backend or "local")
    click.echo(json.dumps(report.as_json(), indent=2) if as_json else str(report))
    ctx.exit(0 if report.ok else 1)


@sandbox.command()
@click.option("--backend", metavar="SPEC", help="Sandbox. Default: local, unless a session is named.")
@click.option("--session", metavar="SPEC", help="Session to clean up after instead of a sandbox.")
def reap(backend: str | None, session: str | None) -> None:
    """Remove what crashed runs left: containers, images of snapshots, control groups."""
    _refuse_both(backend, session)
    host = Host.discover()
    pool: SandboxPool | SessionPool = (host.session(session) if session else host.sandbox(backend or "local")).make()
    try:
        type(pool).reap()  # a pool has mostly done so already, when it was made
    finally:
        pool.close()
    click.echo(f"{session or backend or 'local'}: nothing of crashed runs is left")


def _refuse_both(backend: str | None, session: str | None) -> None:
    if backend is not None and session is not None:
        raise UsageError("--backend names a sandbox and --session a session. Name one of them at a time.")


def as_values(result: JobResult) -> dict[str, Any]:
    """Returns a result as values that JSON can hold; bytes that are no UTF-8 become backslash escapes."""
    return {
        "outcome": result.outcome,
        "stdout": result.stdout.decode("utf-8", "backslashreplace"),
        "stderr": result.stderr.decode("utf-8", "backslashreplace"),
        "exit_code": result.exit_code,
        "signal": result.signal,
        "cpu_seconds": result.cpu_seconds,
        "wall_seconds": result.wall_seconds,
        "peak_bytes": result.peak_bytes,
        "degraded": list(result.degraded),
        "reason": result.reason,
    }


def _described(result: JobResult) -> str:
    how = "" if result.exit_code is None else f", exit code {result.exit_code}"
    how += "" if result.signal is None else f", signal {result.signal}"
    peak = "" if result.peak_bytes is None else f", {result.peak_bytes / 2**20:.1f} MB"
    lines = [f"{result.outcome}{how}: {result.cpu_seconds:.3f} s cpu, {result.wall_seconds:.3f} s wall{peak}"]
    lines += [f"without {name}" for name in result.degraded]
    lines += [printable(result.reason)] if result.reason else []
    for name, content in (("stdout", result.stdout), ("stderr", result.stderr)):
        if content:
            text = printable(content.decode("utf-8", "backslashreplace"))
            lines += [f"{name}:", *(f"  {line}" for line in text.rstrip("\n").split("\n"))]
    return "\n".join(lines)
