"""`grpo run`: flags and files in, a run out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grpo.core.config.schema import load_config
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host

if TYPE_CHECKING:
    from grpo.core.run.job import RunSummary

# Flag to dotted configuration key; a flag that is not given leaves the key alone.
FLAGS = {
    "model": "model",
    "dataset": "dataset",
    "out": "out",
    "seed": "seed",
    "steps": "train.steps",
    "epochs": "train.epochs",
    "limit": "train.limit",
    "lr": "train.lr",
    "group_size": "train.group_size",
    "prompts_per_step": "train.prompts_per_step",
    "micro_batch_size": "train.micro_batch_size",
    "warmup_steps": "train.warmup_steps",
    "checkpointing": "train.checkpointing",
    "loss": "loss.type",
    "beta": "loss.beta",
    "rollout": "rollout.backend",
    "server_url": "rollout.server_url",
    "lora_sync": "rollout.lora_sync",
    "overlap": "rollout.overlap",
    "share_weights": "rollout.share_weights",
    "temperature": "rollout.temperature",
    "max_prompt_length": "rollout.max_prompt_length",
    "max_completion_length": "rollout.max_completion_length",
    "lora": "lora.enabled",
    "lora_rank": "lora.rank",
    "lora_alpha": "lora.alpha",
    "bits": "lora.bits",
    "eval_every": "evaluation.every",
    "eval_size": "evaluation.size",
    "save_every": "output.save_every",
    "canaries": "canaries.file",
    "canary_cases": "canaries.cases",
}


@click.command()
@click.option(
    "--env", "envs", metavar="SPEC", multiple=True, help="The environment, for example gsm8k; repeat for several."
)
@click.option("--reward", "rewards", metavar="SPEC", multiple=True, help="A reward; repeat for several.")
@click.option(
    "--env-reward",
    "env_rewards",
    metavar="ENV SPEC",
    type=(str, str),
    multiple=True,
    help="A reward for one environment of several, which is named first.",
)
@click.option("--model", metavar="NAME", help="A hub id or a folder. Default: the embedded demonstration model.")
@click.option("--dataset", metavar="FILE|ID", help="Rows for the environment: a file or a hub dataset.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A TOML file with settings.")
@click.option("--set", "pairs", metavar="KEY=VALUE", multiple=True, help="Any setting, for example loss.epsilon=0.3.")
@click.option("--steps", type=int, help="Optimizer steps.")
@click.option("--epochs", type=float, help="Passes over the rows, instead of --steps.")
@click.option("--limit", type=int, help="Use only the first N training rows.")
@click.option("--seed", type=int, help="Seeds everything. Default: 0.")
@click.option("--lr", type=float, help="Learning rate. Default: by model, ten times as much with --lora.")
@click.option("--group-size", type=int, help="Completions per prompt. Default: 8.")
@click.option("--prompts-per-step", type=int, help="Prompts per step. Default: 8.")
@click.option("--micro-batch-size", type=int, help="Completions per forward and backward pass.")
@click.option("--warmup-steps", type=int, help="Supervised steps on worked answers before GRPO.")
@click.option("--checkpointing", metavar="MODE", help="Activations: none, full, offload or auto (the default).")
@click.option("--loss", help="grpo, bnpo, dr_grpo, dapo, cispo or gspo. Default: dapo.")
@click.option("--beta", type=float, help="Weight of the KL term. Default: 0.")
@click.option("--rollout", metavar="BACKEND", help="Who samples: hf (the default), vllm or vllm-server.")
@click.option(
    "--server-url", metavar="URL", help="Where grpo serve-rollouts listens; several: A,B. Default: port 8271 here."
)
@click.option("--lora-sync", metavar="WAY", help="How vLLM gets an adapter: adapter, folded or auto (the default).")
@click.option("--overlap", is_flag=True, default=None, help="Sample the next batch while this one trains (vLLM).")
@click.option("--share-weights", is_flag=True, default=None, help="LoRA: vLLM and the policy share the frozen weights.")
@click.option("--temperature", type=float, help="Sampling temperature. Default: 1.")
@click.option("--max-prompt-length", type=int, help="A longer prompt is an error.")
@click.option("--max-completion-length", type=int, help="New tokens per completion.")
@click.option("--lora/--full", "lora", default=None, help="Train an adapter, or all weights (the default).")
@click.option("--lora-rank", type=int, help="Rank of the adapter. Default: 16.")
@click.option("--lora-alpha", type=float, help="Alpha of the adapter. Default: twice the rank.")
@click.option("--lora-targets", metavar="A,B", help="Modules to adapt. Default: all linear layers.")
@click.option("--bits", type=int, help="4: quantise the frozen weights (QLoRA).")
@click.option("--eval-every", type=int, help="Steps between held-out evaluations. Default: 20.")
@click.option("--eval-size", type=int, help="Held-out rows to evaluate on. Default: 200; 0: none.")
@click.option("--save-every", type=int, help="Steps between checkpoints. Default: 20.")
@click.option("--canaries", type=click.Path(path_type=Path), help="Known completions to watch the rewards with.")
@click.option("--canary-cases", is_flag=True, default=None, help="Watch the rewards with the cases that they declare.")
@click.option("--report-to", metavar="A,B", help="Trackers: wandb, tensorboard, trackio.")
@click.option("--out", type=click.Path(path_type=Path), help="The run directory. Default: runs/<time>-<env>.")
@click.option("--resume", "resume_from", type=click.Path(path_type=Path), help="Continue this run directory.")
@click.option("--dry-run", is_flag=True, help="Check everything, show the plan, train nothing.")
@click.option("--quiet", is_flag=True, help="Print warnings and errors only.")
def run(
    envs: tuple[str, ...],
    rewards: tuple[str, ...],
    env_rewards: tuple[tuple[str, str], ...],
    config_file: Path | None,
    pairs: tuple[str, ...],
    lora_targets: str | None,
    report_to: str | None,
    resume_from: Path | None,
    dry_run: bool,
    quiet: bool,
    **given: Any,
) -> int:
    """Train a policy on an environment.

    Without --model it trains the embedded demonstration model on embedded problems: no network, no GPU, about a
    minute. Every setting of docs/configuration.md can be given with --set or in a --config file.
    """
    from grpo.core.run.display import display_for
    from grpo.core.run.job import resume, start

    flags = {FLAGS[name]: str(value) if isinstance(value, Path) else value for name, value in given.items()}
    flags["env"] = (envs[0] if len(envs) == 1 else list(envs)) if envs else None
    flags["rewards"] = list(rewards) or None
    flags["env_rewards"] = gathered(env_rewards) or None
    flags["lora.targets"] = lora_targets if lora_targets in (None, "all-linear") else lora_targets.split(",")
    flags["output.report_to"] = report_to.split(",") if report_to else None
    display = display_for(quiet=quiet)
    try:
        if resume_from is not None:
            extra = [key for key, value in flags.items() if value is not None]
            if extra or pairs or config_file or dry_run:
                raise UsageError("--resume continues a run with its own settings; leave the other options out.")
            return _exit_code(resume(resume_from, Host.discover(), display))
        config = load_config(config_file, pairs, flags)
        host = Host.discover()
        if dry_run:
            from grpo.core.check.gold.validate import doubts
            from grpo.core.planning.decide import make_plan
            from grpo.core.planning.output import RUNS
            from grpo.core.record.disk import refuse_full_disk

            plan = make_plan(config, host)
            refuse_full_disk(plan.config.out or RUNS, plan.disk_bytes)
            display.planned(plan, None, ["dry run: nothing was trained"])
            for note in (*plan.notes, *doubts(plan)):
                display.warned(note)
            return 0
        return _exit_code(start(config, host, display))
    finally:
        display.close()


def _exit_code(summary: RunSummary) -> int:
    return 130 if summary.status == "interrupted" else 0


def gathered(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Returns each first to its seconds, in order."""
    found: dict[str, list[str]] = {}
    for first, second in pairs:
        found.setdefault(first, []).append(second)
    return found
