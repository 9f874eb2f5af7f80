"""One process and two, beside plain TRL, and what it takes to bring their weights to a rollout server.

    python benchmarks/scale.py [--only steps|syncs] [--rounds 2] [--lora]
    python benchmarks/scale.py --model DIR --prompts 2 --group-size 4 --tokens 16 --steps 3 --rounds 1

Prints two tables in Markdown, with the machine and the command; what is being measured goes to stderr. Everything runs
on CPUs: processes of one thread each, started by torchrun, over gloo.

Steps: `grpo` and plain TRL train the same policy on the same prompts with the same batch, reward, loss and token limit,
in one process and in two, by DDP, FSDP 2 and ZeRO-3, which shard every tensor. Each run is made of fresh processes and
the sides take turns. A figure is the median step of a run, and of the rounds the least, which other programs add least
to; memory is the largest peak of a process. The reward is noise and the learning rate next to nothing, so that both
sides have the same work in every step, whatever the model can do.

Syncs: full fine-tuning at lr 1e-6 and an adapter, trained by one process and by two that share the policy (FSDP 2),
each step's weights handed to a rollout server in a process of its own; the embedded model in float32, others in
bfloat16. The first sync of a run, which also tests the engine, does not count. Needs vLLM (make vllm).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests" / "support"))

from sharded_command import FSDP, PLAIN, zero  # noqa: E402

MIB = 2**20
SIDES = ("plain TRL", "grpo")
SETTLING = 1  # differences of steps that do not count, after the first step, which has none
RANK = 16
SYNCS: dict[str, dict[str, Any]] = {  # what is sent: settings of a run
    "everything": {"rollout": {"weight_sync": "everything"}},
    "everything, by a group (gloo)": {"rollout": {"weight_sync": "broadcast"}},
    "what changed": {"rollout": {"weight_sync": "delta"}},
    "the adapter": {"lora": {"enabled": True, "rank": RANK}, "rollout": {"lora_sync": "adapter"}},
}


class Failed(Exception):
    """A run that did not come to its end."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a policy is trained.

    Attributes:
        processes: that train together.
        sharding: what each of them has a part of, as the tables call it.
    """

    processes: int
    sharding: str

    def __str__(self) -> str:
        return f"{self.processes} {'processes' if self.processes > 1 else 'process'}, {self.sharding}"

    def variables(self, folder: Path) -> Mapping[str, str]:
        """As `accelerate launch` sets them."""
        if self.sharding == "ZeRO-3":
            return zero(3, folder)
        return FSDP if self.sharding == "FSDP 2" else {}


ALONE, SHARED = Way(1, "whole"), Way(2, "FSDP 2")
WAYS = (ALONE, Way(2, "DDP"), SHARED, Way(2, "ZeRO-3"))


@dataclass(frozen=True, slots=True)
class Taken:
    """What a run took.

    Attributes:
        seconds: of its steps but the first, by the clock of the first process.
        peak: bytes, of the process that had most.
        metrics: of each step; empty for plain TRL.
    """

    seconds: list[float]
    peak: int
    metrics: list[dict[str, float]]


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """The configuration that all runs have in common."""
    return {
        "env": "gsm8k",
        "rewards": [f"{HERE / 'scale_reward.py'}:noise"],
        "model": options.model,
        "dataset": "embedded",
        "train": {
            "steps": options.steps,
            "prompts_per_step": options.prompts,
            "group_size": options.group_size,
            "lr": 1e-6,
            "lr_warmup_steps": 0,
        },
        "rollout": {"max_completion_length": options.tokens},
        "lora": {"enabled": options.lora, "rank": RANK},
        "evaluation": {"size": 0},
        "output": {"save_every": options.steps + 1, "report_to": []},
    }


def merged(settings: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings with those of some sections in their place."""
    return {**settings, **{name: {**settings.get(name, {}), **values} for name, values in more.items()}}


def trained(side: str, settings: Mapping[str, Any], way: Way) -> Taken:
    """Trains in fresh processes.

    Raises:
        Failed: with what the processes said last.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = json.dumps({"side": side, "settings": {**settings, "out": str(folder / "run")}})
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(way.processes)]
        done = subprocess.run(
            [sys.executable, *launcher, str(HERE / "scale_process.py"), job, name],
            env={**os.environ, **PLAIN, "CUDA_VISIBLE_DEVICES": "", **way.variables(folder)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("[rank")] or [done.stderr[-2000:]]
            raise Failed(f"{side}, {way}: {said[-1]}")
        parts = [json.loads((folder / f"process-{n}.json").read_text()) for n in range(way.processes)]
        metrics = folder / "run" / "metrics.jsonl"
        rows = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.is_file() else []
        return Taken(parts[0]["seconds"], max(part["peak"] for part in parts), rows)


def missing(way: Way) -> str | None:
    """Says why a way cannot be measured here, or returns None."""
    if way.sharding == "ZeRO-3" and importlib.util.find_spec("deepspeed") is None:
        return "DeepSpeed is not installed: make deepspeed"
    return None


def told(text: str) -> None:
    """Says on stderr how far the measurement is."""
    sys.stderr.write(f"{text}\n")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def measure_steps(options: argparse.Namespace) -> Iterator[str]:
    """Yields the lines about steps."""
    settings, rows, left_out = settings_of(options), [], []
    for way in (way for way in WAYS if way.sharding in options.sharding):
        if (reason := missing(way)) is not None:
            left_out.append(f"Not measured: {way} ({reason}).")
            continue
        seconds: dict[str, list[float]] = {side: [] for side in SIDES}
        peaks: dict[str, list[int]] = {side: [] for side in SIDES}
        for number in range(1, options.rounds + 1):
            for side in SIDES:
                try:
                    taken = trained(side, settings, way)
                except Failed as failure:
                    told(str(failure))
                    left_out.append(f"Not measured: {side} with {way}, which failed; stderr has what it said.")
                    continue
                seconds[side].append(statistics.median(taken.seconds[SETTLING:]))
                peaks[side].append(taken.peak)
                told(f"{way}, round {number}: {side} {seconds[side][-1]:.3f} s a step, {taken.peak / MIB:.0f} MiB")
        rows.append(step_row(way, seconds, peaks))
    yield table(
        ("processes", "sharded", "grpo, s", "plain TRL, s", "TRL takes", "grpo, MiB each", "plain TRL, MiB each"), rows
    )
    yield from dict.fromkeys(left_out)


def step_row(way: Way, seconds: Mapping[str, list[float]], peaks: Mapping[str, list[int]]) -> tuple[str, ...]:
    """Returns a row of the table of steps, with a dash for what failed."""
    theirs, own = ([min(seconds[side])] if seconds[side] else [] for side in SIDES)
    ratio = f"{theirs[0] / own[0]:.1f} times as long" if theirs and own else "-"
    return (
        str(way.processes),
        way.sharding,
        *(f"{one[0]:.3g}" if one else "-" for one in (own, theirs)),
        ratio,
        *(f"{max(peaks[side]) / MIB:,.0f}" if peaks[side] else "-" for side in reversed(SIDES)),
    )


def sync_dtype(options: argparse.Namespace) -> str:
    """The type of the weights whose syncs are measured."""
    return "bfloat16" if options.model else "float32"


@contextmanager
def rollout_server(options: argparse.Namespace) -> Iterator[str]:
    """Starts a server that fits all runs of the second table, and yields its address."""
    from sync import served

    from grpo.core.policy.load import policy_source

    folder = options.model or policy_source(None).path
    with served(folder, sync_dtype(options), "--lora", "--lora-rank", str(RANK)) as url:
        yield url


def measure_syncs(options: argparse.Namespace) -> Iterator[str]:
    """Yields the lines about syncs."""
    if importlib.util.find_spec("vllm") is None:
        yield "Not measured: syncs (vLLM is not installed: make vllm)."
        return
    found: dict[tuple[str, Way], list[dict[str, float]]] = {}
    left_out = []
    with rollout_server(options) as url:
        common = merged(
            {**settings_of(options), "lora": {}},
            {
                "train": {
                    "steps": options.syncs + 1,
                    "dtype": sync_dtype(options),
                    "prompts_per_step": 2,
                    "group_size": 2,
                },
                "rollout": {"backend": "vllm-server", "server_url": url, "max_completion_length": 8},
                "output": {"save_every": options.syncs + 2},
            },
        )
        for number in range(1, options.rounds + 1):
            for way in (way for way in (ALONE, SHARED) if way.sharding in options.sharding):
                for sent, more in SYNCS.items():
                    try:
                        taken = trained("grpo", merged(common, more), way)
                    except Failed as failure:
                        told(str(failure))
                        left_out.append(f"Not measured: {sent}, {way}, which failed; stderr has what it said.")
                        continue
                    found.setdefault((sent, way), []).extend(taken.metrics[1:])
                    told(f"{way}, round {number}: {sent}, {taken.metrics[-1]['sync/seconds']:.2f} s a sync")
    sizes = {key: statistics.median(row["sync/bytes"] for row in metrics) for key, metrics in found.items()}
    whole = max((size for (sent, _), size in sizes.items() if sent == "everything"), default=None)
    rows = [
        (sent, str(way), f"{size / MIB:,.2f}", f"{size / whole:.1%}" if whole else "-", *times(found[sent, way]))
        for (sent, way), size in sizes.items()
    ]
    yield table(
        ("sent", "trained by", "MiB", "of everything", "handed over, ms (median)", "and proven, ms (median)"), rows
    )
    yield from dict.fromkeys(left_out)


def times(metrics: Sequence[Mapping[str, float]]) -> list[str]:
    """Returns least and median milliseconds of handing over, and of all of a sync."""
    found = []
    for name in ("sync/hand_over_seconds", "sync/seconds"):
        values = [1e3 * row[name] for row in metrics]
        found.append(f"{min(values):,.0f} ({statistics.median(values):,.0f})")
    return found


def main() -> None:
    """Measures and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["steps", "syncs"])
    shardings = [way.sharding for way in WAYS]
    parser.add_argument("--sharding", nargs="+", choices=shardings, default=shardings, help="left out: all")
    parser.add_argument("--model", help="a folder; left out: the embedded model")
    parser.add_argument("--lora", action="store_true", help="steps train an adapter")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=8, help="of a step, over all processes")
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=96, help="of the longest completion")
    parser.add_argument("--syncs", type=int, default=5, help="of a run that count")
    options = parser.parse_args()
    if options.steps < SETTLING + 2 or options.syncs < 1:
        parser.error(f"--steps has to be {SETTLING + 2} or more, and --syncs 1 or more")
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "trl", "transformers"))
    print(f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}, {libraries}")
    print(f"python {shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])}")
    parts = {"steps": measure_steps, "syncs": measure_syncs}
    for name, measure in parts.items():
        if options.only in (None, name):
            print()
            for line in measure(options):
                print(line, flush=True)


if __name__ == "__main__":
    main()
