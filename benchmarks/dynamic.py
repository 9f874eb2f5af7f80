"""What do dynamic sampling and a curriculum bring? Held-out accuracy against sampled tokens, for several seeds.

    python benchmarks/dynamic.py                     # rows of which a third is easy, a third right and a third too hard
    python benchmarks/dynamic.py -- --env gsm8k --reward proximity

What stands after `--` are the arguments of `grpo run`. Tokens are those of all completions, also of those that were
sampled in vain; how many it took to an accuracy is read off a straight line between two evaluations.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

WAYS = {
    "plain": (),
    "dynamic": ("--dynamic", "2"),
    "curriculum": ("--sampler", "curriculum"),
    "both": ("--dynamic", "2", "--sampler", "curriculum"),
}
Curve = list[tuple[float, float]]  # thousands of tokens and held-out accuracy


def write_mixed(folder: Path, each: int = 16) -> None:
    """Writes rows of three difficulties, the last of them out of reach, and held-out ones of the middle one."""
    from grpo.envs.datasets.word_problems import generate

    easy, right = (generate(each, seed=5, level=level) for level in ("easy", "medium"))
    train = [*easy, *right, *map(out_of_reach, generate(each, seed=6, level="hard"))]
    random.Random(0).shuffle(train)
    for name, rows in (("train", train), ("test", generate(200, seed=9, level="medium"))):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def out_of_reach(row: Mapping[str, str]) -> dict[str, str]:
    """Returns a problem that asks for a product of large numbers at its end."""
    before, _, said = row["answer"].rpartition("####")
    first, second = int(said), int(said) + 30
    product = first * second
    worked = f"{before}{first}*{second}=<<{first}*{second}={product}>>{product}\n#### {product}"
    return {"question": f"{row['question']} What is that times {second}?", "answer": worked}


def trained(arguments: Sequence[str], run: Path) -> tuple[Curve, float, float]:
    """Runs one job; returns its curve, its share of groups without signal and that of wasted tokens."""
    command = [sys.executable, "-m", "grpo", "run", *arguments, "--out", str(run), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    size = json.loads((run / "config.json").read_text())["train"]
    batch = size["group_size"] * size["prompts_per_step"]
    curve, tokens, flat, wasted = Curve(), 0.0, [], []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["step"]:
            wasted.append(row.get("sampling/wasted", 0.0))
            flat.append(row["frac_reward_zero_std"])
            tokens += row["completions/mean_length"] * batch / (1 - wasted[-1]) / 1000
        if "held_out/accuracy" in row:
            curve.append((tokens, row["held_out/accuracy"]))
    return curve, statistics.mean(flat), statistics.mean(wasted)


def tokens_to(curve: Curve, accuracy: float) -> float:
    """Returns thousands of tokens until an accuracy was first reached; infinity if never."""
    for (before, low), (after, high) in pairwise(curve):
        if low < accuracy <= high:
            return before + (after - before) * (accuracy - low) / (high - low)
    return math.inf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--at", nargs="+", type=float, default=[0.5, 0.7, 0.9], help="accuracies to reach")
    parser.add_argument("job", nargs="*", help="arguments of grpo run, instead of the mixed job")
    options = parser.parse_args()
    heads = "".join(f"{f'{at:g} after':>11}" for at in options.at)
    print(f"{'way':<12}{'seed':>5}{'before':>8}{'after':>7}{'k tokens':>10}{'no signal':>11}{'wasted':>8}{heads}")
    with tempfile.TemporaryDirectory() as folder:
        write_mixed(Path(folder))
        mixed = ["--env", f"gsm8k:dataset={folder}", "--reward", "gsm8k.correctness", "--steps", "24", "--lr", "6e-6"]
        for seed in range(options.seeds):
            for way in options.ways:
                job = [*(options.job or mixed), "--eval-every", "4", "--seed", str(seed), *WAYS[way]]
                curve, flat, wasted = trained(job, Path(folder) / f"{way}-{seed}")
                reached = "".join(f"{tokens_to(curve, at):>11.1f}" for at in options.at)
                told = f"{curve[0][1]:>8.3f}{curve[-1][1]:>7.3f}{curve[-1][0]:>10.1f}{flat:>11.2f}{wasted:>8.2f}"
                print(f"{way:<12}{seed:>5}{told}{reached}", flush=True)


if __name__ == "__main__":
    main()
