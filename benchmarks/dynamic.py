"""What do dynamic sampling and a curriculum bring? Held-out accuracy against sampled tokens, for several seeds.

    python benchmarks/dynamic.py                     # rows of which a third is easy, a third right and a third too hard
    python benchmarks/dynamic.py -- --env gsm8k --reward proximity

The policy of the mixed rows is made first: the default job's, which answers all problems of two operations, and then
a warm-up that leaves it the easy ones and has it guess at nearly all others (20 to 1), so that there is something to
find out again. Easy rows are problems of one operation, right ones of two, and those out of reach end with a product
of large numbers.

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

from grpo.envs.datasets.word_problems import generate

WAYS = {
    "plain": (),
    "dynamic": ("--dynamic", "2"),
    "curriculum": ("--sampler", "curriculum"),
    "lean": ("--sampler", "curriculum:fill=false"),
    "both": ("--dynamic", "2", "--sampler", "curriculum"),
}
Curve = list[tuple[float, float]]  # thousands of tokens and held-out accuracy


def write_rows(file: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """Writes rows in a mixed order, as JSON lines."""
    file.parent.mkdir(exist_ok=True)
    mixed = random.Random(0).sample(rows, len(rows))
    file.write_text("".join(json.dumps(row) + "\n" for row in mixed))


def write_mixed(folder: Path, each: int = 8) -> None:
    """Writes rows of three difficulties, the last of them out of reach, and held-out ones of the middle one."""
    easy, right = (generate(each, seed=5, level=level) for level in ("easy", "medium"))
    write_rows(folder / "train.jsonl", [*easy, *right, *map(out_of_reach, generate(each, seed=6, level="hard"))])
    write_rows(folder / "test.jsonl", generate(200, seed=9, level="medium"))


def made_policy(folder: Path) -> Path:
    """Makes the policy that is easy with easy rows and guesses at others; returns its folder."""
    random_ = random.Random(1)
    right, hard = generate(900, seed=22, level="medium"), generate(300, seed=23, level="hard")
    right = [guessed(row) if random_.random() < 0.95 else row for row in right]
    write_rows(folder / "taught.jsonl", [*generate(500, seed=21, level="easy"), *right, *map(guessed, hard)])
    base, taught = folder / "base", folder / "taught"
    grpo_run(["--env", "gsm8k", "--steps", "60"], base)
    job = ["--env", "gsm8k", "--dataset", f"{folder}/taught.jsonl", "--model", str(base / "model"), "--steps", "1"]
    grpo_run([*job, "--lr", "1e-6", "--warmup-steps", "60", "--set", "train.warmup_lr=3e-4"], taught)
    return taught / "model"


def guessed(row: Mapping[str, str]) -> dict[str, str]:
    """Returns a problem whose worked answer is a guess."""
    gold = row["answer"].rpartition("####")[2].strip()
    return {**row, "answer": f"I guess it is {gold}.\n#### {gold}"}


def out_of_reach(row: Mapping[str, str]) -> dict[str, str]:
    """Returns a problem that asks for a product of large numbers at its end."""
    before, _, said = row["answer"].rpartition("####")
    first, second = int(said), int(said) + 30
    product = first * second
    worked = f"{before}{first}*{second}=<<{first}*{second}={product}>>{product}\n#### {product}"
    return {"question": f"{row['question']} What is that times {second}?", "answer": worked}


def grpo_run(arguments: Sequence[str], run: Path) -> None:
    """Runs one job.

    Raises:
        SystemExit: it failed.
    """
    command = [sys.executable, "-m", "grpo", "run", *arguments, "--out", str(run), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)


def trained(arguments: Sequence[str], run: Path) -> tuple[Curve, float, float]:
    """Runs one job; returns its curve, its share of groups without signal and that of wasted tokens."""
    grpo_run(arguments, run)
    size = json.loads((run / "config.json").read_text())["train"]
    batch = size["group_size"] * size["prompts_per_step"]
    curve, tokens, flat, wasted = Curve(), 0.0, [], []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["step"]:
            wasted.append(row.get("sampling/wasted", 0.0))
            flat.append(row["frac_reward_zero_std"])
            asked = row.get("sampling/asked", 1.0)
            tokens += row["completions/mean_length"] * batch * asked / (1 - wasted[-1]) / 1000
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
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--prompts", nargs="+", type=int, default=[4], help="prompts of a step")
    parser.add_argument("--lr", default="3e-5", help="learning rate of the mixed job")
    parser.add_argument("--steps", type=int, default=40, help="of 8 prompts; with fewer there are more")
    parser.add_argument("--at", nargs="+", type=float, default=[0.5, 0.9], help="accuracies to reach")
    parser.add_argument("--model", help="a policy that was made before, to make none")
    parser.add_argument("job", nargs="*", help="arguments of grpo run, instead of the mixed job")
    options = parser.parse_args()
    heads = "".join(f"{f'{at:g} after':>11}" for at in options.at)
    print(
        f"{'way':<12}{'prompts':>8}{'seed':>5}{'before':>8}{'after':>7}{'k tokens':>10}{'no signal':>11}{'wasted':>8}"
        + heads
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mixed = ["--env", f"gsm8k:dataset={folder / 'mixed'}", "--reward", "gsm8k.correctness", "--lr", options.lr]
        if not options.job:
            write_mixed(folder / "mixed")
            mixed += ["--model", options.model or str(made_policy(folder))]
        for seed in options.seeds:
            for prompts in options.prompts:
                steps = round(options.steps * math.sqrt(8 / prompts))
                for way in options.ways:
                    job = [*(options.job or mixed), "--prompts-per-step", str(prompts), "--steps", str(steps)]
                    job += ["--eval-every", "4", "--seed", str(seed), "--save-every", "1000", *WAYS[way]]
                    curve, flat, wasted = trained(job, folder / f"{way}-{prompts}-{seed}")
                    reached = "".join(f"{tokens_to(curve, at):>11.1f}" for at in options.at)
                    told = f"{curve[0][1]:>8.3f}{curve[-1][1]:>7.3f}{curve[-1][0]:>10.1f}{flat:>11.2f}{wasted:>8.2f}"
                    print(f"{way:<12}{prompts:>8}{seed:>5}{told}{reached}", flush=True)


if __name__ == "__main__":
    main()
