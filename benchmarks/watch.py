"""What a large run costs that somebody looks at: `grpo watch`, step by step, beside the whole page by `grpo report`.

    python benchmarks/watch.py [--rollouts 100000] [--per-step 1000]

Makes a run directory with completions of 600 characters, one in 500 failed, and prints: the time until a watched page
has something to show, until all of the run is read, until a step that was written meanwhile is in, and until a block
of texts is; then how long the whole page takes that would show the same step.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from grpo.core.record.run_dir import RolloutRow, RunDir, append_metrics, create_run_dir, write_json, write_rollouts
from grpo.core.report.report import write_report
from grpo.core.watch.state import WatchedRuns

GROUP = 8
FAILS = 500  # every so many
REPORT = 10 * 2**20  # bytes that a page may have


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument("--per-step", type=int, default=1000, help="rollouts of a step")
    given = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}\n")
    with tempfile.TemporaryDirectory() as folder:
        steps = given.rollouts // given.per_step
        run = made_run(Path(folder) / "run", steps, given.per_step)
        print(f"| {steps} steps, {steps * given.per_step:,} rollouts | s |\n|---|---|")
        for what, seconds in measured(run, steps, given.per_step):
            print(f"| {what} | {seconds:.2f} |", flush=True)


def measured(run: RunDir, steps: int, count: int) -> Iterator[tuple[str, float]]:
    """Yields what was done, and the seconds that it took."""
    begun = time.perf_counter()
    watched = WatchedRuns([run])
    state = watched.state()
    yield "first sight", time.perf_counter() - begun
    while state.waiting:
        state = watched.state()
    yield "all of it", time.perf_counter() - begun
    add_step(run, steps + 1, count)
    begun = time.perf_counter()
    state = watched.state()
    yield "one more step", time.perf_counter() - begun
    assert not state.waiting
    begun = time.perf_counter()
    assert watched.block("run0-texts0", state.version)
    yield "a block of texts", time.perf_counter() - begun
    begun = time.perf_counter()
    assert write_report([run.path], run.path.with_name("run.html"), limit=REPORT).held
    yield "the whole page", time.perf_counter() - begun


def made_run(path: Path, steps: int, count: int) -> RunDir:
    """Makes a run that is over."""
    train = {"steps": steps, "dtype": "float32", "lr": 3e-5}
    settings = {"env": "gsm8k", "rewards": ["proximity"], "env_rewards": {}, "model": None, "train": train}
    run = create_run_dir(path, settings, {"libraries": {}, "plugins": {}})
    for step in range(1, steps + 1):
        add_step(run, step, count)
    write_json(run.state, {"status": "done", "step": steps, "updated": "2026-01-01 00:00:00"})
    return run


def add_step(run: RunDir, step: int, count: int) -> None:
    """Records a step as a run does."""
    rows = [made_rollout(step, number) for number in range(count)]
    write_rollouts(run, step, rows)
    rewards = [row.reward for row in rows if row.reward is not None]
    append_metrics(run, {"step": step, "reward": sum(rewards) / len(rewards), "loss": 0.0, "time/step": 1.0})


def made_rollout(step: int, number: int) -> RolloutRow:
    """Makes a rollout, whose text does not shrink when it is compressed, as those of a policy hardly do."""
    chance = random.Random(step * 10**6 + number)
    right, fails = chance.random() < 0.5, number % FAILS == FAILS // 2
    return RolloutRow(
        step=step,
        group=number // GROUP,
        prompt=json.dumps([{"role": "user", "content": f"What is {step} and {number // GROUP}?"}]),
        completion=chance.randbytes(270).hex(" ", 4),
        tokens=chance.randrange(100, 1000),
        finish_reason="stop",
        columns=json.dumps({"answer": str(step + number // GROUP)}),
        reward=None if fails else float(right),
        advantage=0.0 if fails else right - 0.5,
        outcomes={"proximity": ("failure", None, "timed out") if fails else ("score", float(right), None)},
        env="gsm8k",
        right=None if fails else right,
    )


if __name__ == "__main__":
    main()
