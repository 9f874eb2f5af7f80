"""How fast environments are stepped: steps a second in threads of one process and in processes of their own.

Run it on a quiet machine: python benchmarks/env_processes.py [--environments 64] [--milliseconds 20] [--processes 1 2].
The environment computes in Python for so long in each step, or does nothing; the latter shows what a call costs.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from functools import partial
from typing import Any, SupportsFloat

import gymnasium

from grpo import EnvSpec
from grpo.core.env.env_batch import EnvBatch, LocalEnvBatch
from grpo.core.env.episodes import episodes_of
from grpo.core.env.processes import EnvProcesses
from grpo.core.env.step import take_step
from grpo.core.env.threads import Raised
from grpo.core.text.printable import aligned
from grpo.plugins._spec.binding import BoundEnv

_STEPS = 5


class Busy(gymnasium.Env[str, str]):
    """Computes in Python for as long as it was told."""

    observation_space = action_space = gymnasium.spaces.Text(1000)

    def __init__(self, milliseconds: float) -> None:
        self._seconds = milliseconds / 1000

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        return "Compute.", {}

    def step(self, action: str) -> tuple[str, SupportsFloat, bool, bool, dict[str, Any]]:
        until, total = time.thread_time() + self._seconds, 0
        while time.thread_time() < until:
            total += sum(range(100))
        return f"{total}", 0.0, False, False, {}


def rate(envs: EnvBatch, env: BoundEnv, count: int) -> float:
    """Returns steps a second of so many environments side by side."""
    episodes = episodes_of(env, "train", limit=count, unbounded=count, describe_tools=False)
    with envs:
        envs.start(dict(enumerate(episodes)))
        started = time.perf_counter()
        for _ in range(_STEPS):
            answers = envs.call({number: partial(take_step, "go on") for number in range(count)})
        seconds = time.perf_counter() - started
    failed = [answer.error for answer in answers.values() if isinstance(answer, Raised)]
    if failed:
        raise SystemExit(f"{len(failed)} steps failed, the first with: {failed[0]}")
    return _STEPS * count / seconds


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environments", type=int, default=64)
    parser.add_argument("--milliseconds", type=float, default=20.0)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args()
    spec = EnvSpec(name="busy", version=1, factory=Busy, max_turns=_STEPS)
    lines = []
    for milliseconds in (options.milliseconds, 0.0):
        env = BoundEnv(spec, "benchmark", {"milliseconds": milliseconds})
        rates = [rate(LocalEnvBatch(env.make, seconds=600), env, options.environments)]
        for count in options.processes:
            processes = EnvProcesses(env, count)
            rate(processes.played(600), env, options.environments)  # they start and load
            rates.append(rate(processes.played(600), env, options.environments))
            processes.close()
        lines.append((f"{milliseconds:g} ms a step", *(f"{steps:,.0f}" for steps in rates)))
    print(f"{platform.platform()}, {os.cpu_count()} processors, {options.environments} environments, steps a second")
    heading = ("environment", "threads", *(f"{count} processes" for count in options.processes))
    print("\n".join(aligned([heading, *lines], right=True)))


if __name__ == "__main__":
    main()
