"""Does the policy learn the same with every rollout backend? (hf | vllm) x (full | LoRA), several seeds, one table.

    python benchmarks/rollouts.py [--seeds 3] [--steps 40]

Trains the embedded model on the embedded problems and prints, for each of the four ways, the mean reward of the first
and of the last tenth of the steps, the held-out accuracy before and after, and the seconds of a step. Where a backend
served other weights than the policy's, its curve would stay flat.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WAYS = [(backend, lora) for lora in (False, True) for backend in ("hf", "vllm")]


def train(out: Path, backend: str, *, lora: bool, steps: int, seed: int, evaluation: int) -> list[dict[str, Any]]:
    """Trains once and returns the metrics of all steps."""
    from grpo.core.config.schema import parse_config
    from grpo.core.display.progress import Silent
    from grpo.core.record.run_dir import RunDir, read_metrics
    from grpo.core.run.job import start
    from grpo.plugins.host import Host

    tree = {
        "env": "gsm8k",
        "rewards": ["proximity"],
        "out": str(out),
        "seed": seed,
        "train": {"steps": steps, "lr": 1e-3 if lora else 1e-4},
        "lora": {"enabled": lora},
        "rollout": {"backend": backend},
        "evaluation": {"size": evaluation, "every": 0},
    }
    start(parse_config(tree), Host.discover(), Silent())
    return read_metrics(RunDir(out))


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns the figures of one run."""
    steps = [row for row in rows if row["step"] > 0]
    tenth = max(1, len(steps) // 10)
    held_out = [row["held_out/accuracy"] for row in rows if "held_out/accuracy" in row]
    return {
        "first": statistics.fmean(row["reward"] for row in steps[:tenth]),
        "last": statistics.fmean(row["reward"] for row in steps[-tenth:]),
        "before": held_out[0],
        "after": held_out[-1],
        "step": statistics.median(row["time/step"] for row in steps),
        "apart": max(row["sampling/sampling_logp_difference/max"] for row in steps),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--evaluation", type=int, default=200)
    asked = parser.parse_args()
    print("| rollouts | training | reward, first tenth | last tenth | accuracy before | after | s/step | apart, nats |")
    print("|---|---|---|---|---|---|---|---|")
    for backend, lora in WAYS:
        found = []
        for seed in range(asked.seeds):
            with tempfile.TemporaryDirectory() as folder:
                rows = train(
                    Path(folder) / "run", backend, lora=lora, steps=asked.steps, seed=seed, evaluation=asked.evaluation
                )
            found.append(summary(rows))
        cells = [_cell([one[key] for one in found]) for key in ("first", "last", "before", "after", "step")]
        apart = max(one["apart"] for one in found)
        print(f"| {backend} | {'LoRA' if lora else 'full'} | {' | '.join(cells)} | {apart:.1g} |", flush=True)


def _cell(values: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread}"


if __name__ == "__main__":
    main()
