"""Diagnoses sandboxes, docker, the hub and plugins, and trains two steps."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path

from grpo.core.doctor.lines import Line
from grpo.plugins.errors import SandboxUnavailable, UsageError
from grpo.plugins.host import Host
from grpo.plugins.sandbox_job import Job, SandboxPool

ANSWER = 3.0  # seconds that a service has to answer in
APART = 300  # seconds that a clock may be wrong by
SELF_TEST = 180.0  # seconds for two steps, with every import


def sandbox() -> Iterator[Line]:
    """Yields a line about the sandbox in which programs of the policy run, and each protection that is missing."""
    try:
        pool: SandboxPool = Host.discover().sandbox("local").make()
        try:
            [result] = asyncio.run(pool.run([Job("print(6 * 7)")]))
        finally:
            pool.close()
    except (SandboxUnavailable, UsageError) as error:
        yield Line("sandbox", "error", str(error), "only rewards that run programs need it; see docs/sandbox.md")
        return
    if result.stdout != b"42\n":
        why = result.reason or result.outcome
        yield Line("sandbox", "error", f"a program that prints 42 did not: {why}", "grpo sandbox check")
        return
    for name in result.degraded:
        yield Line("sandbox", "warning", f"programs run without {name}", "grpo sandbox check")
    yield Line("sandbox", "ok", "a program ran in it; attack it with: grpo sandbox check")


def docker() -> Iterator[Line]:
    """Yields a line about docker, which the sandbox `docker` alone needs."""
    tool = shutil.which("docker")
    if tool is None:
        yield Line("docker", "ok", "not installed; only the sandbox `docker` needs it")
        return
    asked = [tool, "version", "--format", "{{.Server.Version}}"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=ANSWER, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Line("docker", "warning", f"does not answer: {error}", "start it, or use the sandbox `local`")
        return
    if done.returncode == 0 and done.stdout.strip():
        yield Line("docker", "ok", f"server {done.stdout.strip()}")
    else:
        lines = done.stderr.strip().splitlines() or ["no answer"]
        yield Line("docker", "warning", lines[-1], "start it, or use the sandbox `local`")


def hub() -> Iterator[Line]:
    """Yields a line about the hub of models and datasets, and about the clock where the two disagree."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        yield Line("hub", "ok", "not checked: HF_HUB_OFFLINE is set, so only the cache is used")
        return
    failure = None
    try:
        request = urllib.request.Request(constants.ENDPOINT, method="HEAD")
        with urllib.request.urlopen(request, timeout=ANSWER) as answer:
            failure = answer.headers.get("Date")
    except urllib.error.HTTPError as error:
        failure = error.headers.get("Date")  # it answers, if not with that page
    except OSError as error:
        why = getattr(error, "reason", None) or error
        advice = "name models and datasets by local folders, or set HF_ENDPOINT to a mirror"
        yield Line("hub", "warning", f"{constants.ENDPOINT} does not answer: {why}", advice)
        return
    yield Line("hub", "ok", f"{constants.ENDPOINT} answers")
    if failure is not None:
        apart = abs(time.time() - parsedate_to_datetime(failure).timestamp())
        if apart > APART:
            yield Line("clock", "warning", f"{apart / 60:.0f} minutes apart from the hub's", "set the clock")


def plugins() -> Iterator[Line]:
    host = Host.discover()
    for problem in host.problems:
        name = f"plugin {problem.distribution}"
        yield Line(name, "error", problem.line, f"grpo plugins check --all, or: pip uninstall {problem.distribution}")
    kinds = Counter(known.kind for known in host.registrations())
    packages = {known.distribution for known in host.registrations()}
    counts = ", ".join(f"{kind}: {number}" for kind, number in kinds.items())
    yield Line("plugins", "ok", f"{counts}; of {', '.join(sorted(packages))}")


def training() -> Iterator[Line]:
    """Yields a line about two steps of the embedded model, which a process of its own trains."""
    with tempfile.TemporaryDirectory(prefix="grpo-doctor-") as folder:
        run = Path(folder) / "run"
        arguments = (
            "run --env gsm8k --reward proximity --steps 2 --prompts-per-step 2 --eval-size 0 --max-completion-length 16"
        )
        command = [sys.executable, "-m", "grpo", *arguments.split(), "--out", str(run)]
        environment = {name: value for name, value in os.environ.items() if name != "GRPO_PLUGINS"}
        began = time.monotonic()
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=SELF_TEST, check=False, env=environment, cwd=folder
            )
        except subprocess.TimeoutExpired:
            yield Line("training", "error", f"two steps took more than {SELF_TEST:g} s", "see what uses the processors")
            return
        took = time.monotonic() - began
        metrics = run / "metrics.jsonl"
        steps = [json.loads(line)["step"] for line in metrics.read_text().splitlines()] if metrics.is_file() else []
        if done.returncode == 0 and steps and steps[-1] == 2:
            yield Line("training", "ok", f"two steps of the embedded model in {took:.0f} s, with all imports")
            return
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        advice = "see all of it with: grpo run --env gsm8k --reward proximity --steps 2"
        yield Line("training", "error", lines[-1], advice)
