"""Seconds and memory of one update beside plain TRL on equal work: forward, backward, optimizer; nothing is generated.

    python benchmarks/update_time.py [--lora] [--no-sharing] [--layers 24] [--steps 3] [--rounds 1]
    python benchmarks/update_time.py --lora --beside full [--hidden 1536] [--checkpointing full]

The model has the shape of Qwen2.5-0.5B (H=896, V=151936; --hidden 1536: of the 1.5B) and random weights; both sides get
the same random completions of one prompt, the same rewards and the same settings, on-policy. Each side runs in a fresh
process and they take turns; a round's figure is the median step without the first. On CPU the time is process CPU time
with one thread, so that other work on the machine counts as little as possible. --no-sharing lets ours compute the
prompt once per completion. --beside full compares an update of an adapter with a full one, both ours.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

WARMUP_STEPS = 1
SHAPES = {  # of Qwen2.5-0.5B and 1.5B
    896: {"intermediate_size": 4864, "num_attention_heads": 14},
    1536: {"intermediate_size": 8960, "num_attention_heads": 12},
}


def save_model(folder: Path, hidden: int, layers: int) -> None:
    """Writes a random model of the shape, with the embedded tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config

    from grpo.core.policy.load import load_tokenizer, policy_source

    tokenizer = load_tokenizer(policy_source(None).path)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=151936,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        **SHAPES[hidden],
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def configuration(options: argparse.Namespace, out: Path) -> dict[str, Any]:
    return {
        "env": "gsm8k",
        "rewards": ["proximity"],
        "model": str(options.model),
        "dataset": "embedded",
        "out": str(out),
        "train": {
            "steps": options.steps,
            "prompts_per_step": 1,
            "group_size": options.group_size,
            "micro_batch_size": options.micro_batch or options.group_size,
            "dtype": options.dtype,
            "check_memory": False,  # it is measured here
            "share_prompts": not options.no_sharing,
            "checkpointing": options.checkpointing,
        },
        "rollout": {"max_completion_length": options.completion, "tolerance": 1e3},
        "lora": {"enabled": options.lora and options.side != "full"},
        "evaluation": {"size": 0},
        "output": {"save_every": options.steps + 1},
    }


def loaded(plan: Any) -> Any:
    """Loads the policy of a plan."""
    from grpo.core.policy.load import load_policy

    return load_policy(plan.source.path, plan.config.train.dtype, plan.config.lora)


def train(options: argparse.Namespace, out: Path, policy: Callable[[Any], Any] = loaded) -> list[float]:
    """Trains one side on random completions; returns seconds per step. `policy` makes the model of a plan."""
    import torch
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOTrainer

    from grpo.core.config.schema import parse_config
    from grpo.core.planning.decide import make_plan
    from grpo.core.rollout.hf.sampler import HfRollouts
    from grpo.core.rollout.types import OnDone, Sampled, SamplingParams
    from grpo.core.scoring.early import EarlyCalls, nothing_begun
    from grpo.core.scoring.outcome import Outcome
    from grpo.core.train.sft.data import run_order
    from grpo.core.train.trainer import PolicyTrainer, grpo_config
    from grpo.plugins.host import Host
    from grpo.plugins.types import Completion

    torch.set_num_threads(1)
    now = time.perf_counter if torch.cuda.is_available() else time.process_time
    plan = make_plan(parse_config(configuration(options, out)), Host.discover())
    draw = torch.Generator().manual_seed(1)
    seconds: list[float] = []

    def drawn(count: int) -> list[list[int]]:
        """Random completions of half (or `options.shortest`) to the whole allowed length."""
        shortest = options.shortest or options.completion // 2
        lengths = torch.randint(shortest, options.completion + 1, (count,), generator=draw)
        return [torch.randint(3, 1000, (int(n),), generator=draw).tolist() for n in lengths]

    class Fixed(HfRollouts):
        """Random completions in the place of sampling; rollout.tolerance lets their log-probabilities be anything."""

        def generate(
            self, prompts: Sequence[Sequence[int]], params: SamplingParams, on_done: OnDone | None = None
        ) -> list[Sampled]:
            done = [Sampled(tuple(row), (0.0,) * len(row), "length") for row in drawn(len(prompts))]
            if on_done is not None:
                on_done(range(len(done)), done)
            return done

    class Scoring:
        """The rewards of the plain side."""

        def begin(self) -> EarlyCalls:
            return nothing_begun()

        def score(self, completions: Sequence[Completion], early: EarlyCalls) -> dict[str, list[Outcome]]:
            return {plan.rewards[0].name: [Outcome("score", score) for score in reward(completions)]}

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            seconds.append(-now())

        def on_step_end(self, *_: Any, **__: Any) -> None:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds[-1] += now()

    class Plain(GRPOTrainer):  # type: ignore[misc]
        def _generate_single_turn(self, prompt_ids: Any, *_: Any, **__: Any) -> Any:
            ids = drawn(len(prompt_ids))
            return ids, [[0.0] * len(row) for row in ids]

    def reward(completions: Any, **_: Any) -> list[float]:
        return [float(number % 3) for number in range(len(completions))]

    model = policy(plan)
    if options.side != "plain_trl":
        trainer: Any = PolicyTrainer(
            model=model,
            tokenizer=plan.tokenizer,
            plan=plan,
            rollouts=Fixed(),
            output_dir=out,
            scoring=Scoring(),
            received=lambda batch: {},
            trained=lambda step, rows: None,
            between_steps=lambda step, rollouts: {},
            callbacks=[Clock()],
        )
    else:
        trainer = Plain(
            model=model,
            callbacks=[Clock()],
            reward_funcs=[reward],
            args=grpo_config(plan, out),
            train_dataset=Dataset.from_dict({"prompt": [list(plan.train[n].prompt) for n in run_order(plan)]}),
            processing_class=plan.tokenizer,
        )
        trainer.remove_callback(PrinterCallback)
    trainer.train()
    return seconds


def measure(side: str, model: Path) -> tuple[float, float]:
    """Runs one side in a process of its own; returns median seconds per step and peak memory in MiB."""
    arguments = [sys.executable, __file__, *sys.argv[1:], "--side", side, "--model", str(model)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr}")
    result = json.loads(done.stdout.splitlines()[-1])
    return statistics.median(result["seconds"][WARMUP_STEPS:]), result["peak_mib"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--no-sharing", action="store_true")
    parser.add_argument("--hidden", type=int, choices=list(SHAPES), default=896)
    parser.add_argument("--checkpointing", choices=["none", "full"], default="none")
    parser.add_argument("--beside", choices=["plain_trl", "full"], default="plain_trl")
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--micro-batch", type=int, help="completions of a backward pass; default: the whole group")
    parser.add_argument("--completion", type=int, default=48, help="tokens of the longest completion")
    parser.add_argument("--shortest", type=int, help="tokens of the shortest; default: half of the longest")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--side", choices=["ours", "plain_trl", "full"], help=argparse.SUPPRESS)
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with tempfile.TemporaryDirectory() as folder:
        if options.side:
            import torch

            seconds = train(options, Path(folder) / "run")
            on_gpu = torch.cuda.is_available()
            peak = (
                torch.cuda.max_memory_allocated()
                if on_gpu
                else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            )
            print(json.dumps({"seconds": seconds, "peak_mib": peak / 2**20}))
            return
        save_model(Path(folder) / "model", options.hidden, options.layers)
        other = {"plain_trl": "TRL", "full": "full"}[options.beside]
        print(f"load {os.getloadavg()[0]:.1f}")
        print("".join(f"{name:>10}" for name in ("grpo s", f"{other} s", "ratio", "grpo MiB", f"{other} MiB")))
        for _ in range(options.rounds):
            (a, peak_a), (b, peak_b) = (measure(side, Path(folder) / "model") for side in ("ours", options.beside))
            print(f"{a:>10.2f}{b:>10.2f}{b / a:>10.2f}{peak_a:>10.0f}{peak_b:>10.0f}", flush=True)


if __name__ == "__main__":
    main()
