"""How long do a session's start, a command and a fork take? `local` beside the commands of docker, in one run.

    python benchmarks/sessions.py [--rounds 20] [--json FILE]

A cold start opens a session with one file, runs `true` in it and closes it; a command runs in an open session; a fork
takes a snapshot and opens a session that begins with it. Docker does the same by `docker run --rm`, `docker exec`, and
`docker commit` with `docker run -d`, from an image of this machine's own Python and shell, without a network. Rounds
alternate, so that other work on the machine slows both, with a pause in which the engine cleans up;
the fastest round is the one that other work disturbed least. Needs an engine at DOCKER_HOST.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from grpo.plugins.session import Session, SessionJob
from grpo.rewards.sandbox.docker_pool import connected
from grpo.rewards.sandbox.engine_image import made_image
from grpo.rewards.session.pool import LocalPool

JOB = SessionJob(files={"task.txt": b"x\n"})
WAIT = "sleep 600"
SETTLE = 1.0  # seconds
ALONE = ("--network", "none")
IMAGE = "grpo-session:shell"
PROGRAMS = ("sh", "sleep", "true", "cat")


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def timed(work: Callable[[], object]) -> float:
    """Returns the milliseconds that work takes on the clock."""
    began = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - began)


def measured(rounds: int) -> dict[str, dict[str, list[float]]]:
    """Returns the milliseconds of each round, by what was done and by whom."""
    client = connected("")
    made_image(client, IMAGE, PROGRAMS)
    client.close()
    pool = LocalPool()
    times: dict[str, dict[str, list[float]]] = {
        what: {"local": [], "docker": []} for what in ("cold start", "command", "fork")
    }
    session = pool.open(JOB)
    container = docker("run", "-d", *ALONE, IMAGE, "sh", "-c", WAIT)
    try:
        for _ in range(rounds):
            time.sleep(SETTLE)
            times["cold start"]["local"].append(timed(lambda: _cold(pool)))
            times["command"]["local"].append(timed(lambda: session.run(["true"])))
            seconds, copy = _forked(session)
            times["fork"]["local"].append(seconds)
            copy.close()
            times["cold start"]["docker"].append(timed(lambda: docker("run", "--rm", *ALONE, IMAGE, "true")))
            times["command"]["docker"].append(timed(lambda: docker("exec", container, "true")))
            times["fork"]["docker"].append(_docker_fork(container))
    finally:
        docker("rm", "-f", container)
        session.close()
        pool.close()
    return times


def _forked(session: Session) -> tuple[float, Session]:
    began = time.perf_counter()
    copy = session.fork(session.snapshot())
    return 1e3 * (time.perf_counter() - began), copy


def _docker_fork(container: str) -> float:
    """Returns the milliseconds of a commit and the start of a second container, which is removed."""
    image = f"grpo-fork:{os.getpid()}"
    began = time.perf_counter()
    docker("commit", container, image)
    copy = docker("run", "-d", *ALONE, image, "sh", "-c", WAIT)
    taken = 1e3 * (time.perf_counter() - began)
    docker("rm", "-f", copy)
    docker("rmi", image)
    return taken


def _cold(pool: LocalPool) -> None:
    session = pool.open(JOB)
    session.run(["true"])
    session.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    times = measured(given.rounds)
    print("| | | local, ms | docker, ms | docker / local |\n|---|---|---|---|---|")
    for what, by in times.items():
        for name, of in (("median", statistics.median), ("fastest", min)):
            local, other = (of(by[who]) for who in ("local", "docker"))
            print(f"| {what} | {name} | {local:.1f} | {other:.0f} | {other / local:.0f} |")
    if given.json is not None:
        given.json.write_text(json.dumps(times), encoding="utf-8")


if __name__ == "__main__":
    main()
