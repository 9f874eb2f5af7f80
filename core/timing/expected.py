"""Predicts time, tokens and calls of a run from earlier runs with the same model, environment, batch and sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from grpo.core.config.defaults import AGENT_CALLS, EMBEDDED_COMPLETION, NAMED_COMPLETION, SAVE_EVERY
from grpo.core.config.schema import RunConfig
from grpo.core.record.list import list_runs
from grpo.core.record.run_dir import RunDir, read_json, read_metrics
from grpo.core.timing.forecast import FIRST_TIME, HELD_OUT, Range, Schedule, judged, seconds_of, short, span
from grpo.plugins.host import Host
from grpo.plugins.rubric import parts

# What changes what is learned and not how long a step takes.
FREE = {"out", "seed", "loss", "evaluation", "output", "failures", "canaries", "sampler"}
FREE |= {"steps", "epochs", "limit", "lr", "lr_schedule", "lr_warmup_steps", "adam_beta1", "adam_beta2", "weight_decay"}
FREE |= {"max_grad_norm", "warmup_steps", "warmup_lr", "check_memory", "temperature", "top_p", "top_k", "min_p"}
FREE |= {"server_url", "server_wait"}
PRICE = "input_price"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a run will take."""

    steps: int | None  # of the run, None where its rows decide
    completions: int  # that it samples; of one step where `steps` is None
    most_tokens: int  # that these can have, in a turn each or in all calls of an agent
    judges: tuple[str, ...] = ()  # the rewards that ask a model about each completion
    like: Path | None = None  # the earlier run that the rest is taken from; None: there is none, and the rest is None
    seconds: Range | None = None  # of all steps, or of one
    tokens: float | None = None  # that will be sampled, about
    calls: float = 0.0  # of judges, about; without an earlier run the most there can be
    dollars: float | None = None  # for these calls, where the earlier run had a price
    gpus: int = 0  # that the run takes
    agent_calls: int = 0  # the most of an agent in all episodes; 0 without one

    def summary(self) -> dict[str, Any]:
        """Returns what --json prints; times in seconds."""
        like = None if self.like is None else str(self.like)
        seconds = None if self.seconds is None else [self.seconds.low, self.seconds.high]
        return asdict(self) | {"judges": list(self.judges), "like": like, "seconds": seconds}

    def lines(self) -> list[str]:
        what = "one step" if self.steps is None else f"{self.steps:,} steps"
        unit = "completions"
        tokens = f"at most {short(self.most_tokens)} tokens a turn"
        if self.agent_calls:
            unit = f"episodes of an agent, at most {self.agent_calls:,} calls"
            tokens = f"at most {short(self.most_tokens)} sampled tokens"
        if self.tokens is not None:
            tokens = f"about {short(self.tokens)} tokens"
        sampled = f"{self.completions:,} {unit}, {tokens}"
        lines = [f"{what}: {sampled}"]
        if self.judges:
            most = "" if self.like else "at most "
            price = "" if self.dollars is None else f", about ${self.dollars:,.2f}"
            lines.append(f"{most}{self.calls:,.0f} calls of {', '.join(self.judges)}{price}")
        if self.seconds is None:
            alike = f"no earlier run here of {FIRST_TIME} steps or more has this model, environment and batch"
            return [*lines, f"time is not known: {alike}"]
        hours = f" ({self.seconds.gpu_hours(self.gpus)})" if self.gpus else ""
        return [*lines, f"{span(self.seconds)}{hours}, as {self.like} took for each step"]


def judges_of(config: RunConfig, host: Host) -> list[str]:
    """Returns the names of rewards and rubric parts that ask a model: with a price. UsageError: a wrong SPEC."""
    named = [config.rewards, *config.env_rewards.values()]
    bound = [part for specs in named for outer in host.rewards(specs) for part in parts(outer)]
    return [plugin.name for plugin in bound if PRICE in {option.name for option in plugin.spec.options}]


def expected(config: RunConfig, judges: Sequence[str], runs: Path, *, gpus: int = 0) -> Expected:
    """Says what a run will take, by earlier runs in the folder `runs`, which may be missing."""
    train, length = config.train, config.rollout.max_completion_length
    length = length or (EMBEDDED_COMPLETION if config.model is None else NAMED_COMPLETION)
    made = train.steps or 1
    each = train.prompts_per_step * train.group_size
    turns = 0 if config.agent is None else config.rollout.max_turns or AGENT_CALLS
    most = each * made * length * max(turns, 1)
    plain = Expected(train.steps, each * made, most, tuple(judges), gpus=gpus, agent_calls=each * made * turns)
    like, rows = _like(config, runs)
    if like is None:
        return replace(plain, calls=float(each * made * len(judges)))
    calls, dollars = judged(rows, each)
    lengths = [row["completions/mean_length"] for row in rows if row.get("completions/mean_length")]
    return replace(
        plain,
        like=like,
        seconds=seconds_of(rows, made, of_last=len(rows), due=_due(config)),
        tokens=each * made * fmean(lengths) if lengths else None,
        calls=calls * made,
        dollars=None if dollars is None else dollars * made,
    )


def _due(config: RunConfig) -> dict[str, int] | None:
    if config.train.steps is None:
        return None
    due = Schedule(config.train.steps, config.evaluation.every, config.output.save_every or SAVE_EVERY).due(0)
    return due if config.evaluation.size else due | {HELD_OUT: 0}


def _like(config: RunConfig, runs: Path) -> tuple[Path | None, list[Mapping[str, Any]]]:
    wanted = config.model_dump(mode="json")
    for line in reversed(list_runs(runs)) if runs.is_dir() else ():
        recorded = read_json(RunDir(line.path).config) if line.problem is None else None
        if recorded is None or not _alike(wanted, recorded):
            continue
        rows: list[Mapping[str, Any]] = list(read_metrics(RunDir(line.path)))
        if sum(bool(row.get("time/step")) for row in rows) >= FIRST_TIME:
            return line.path, rows
    return None, []


def _alike(wanted: Mapping[str, Any], recorded: Mapping[str, Any]) -> bool:
    for name, value in wanted.items():
        if name in FREE or value in (None, "auto"):  # what a run decides for itself
            continue
        before = recorded.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if not _alike(value, before):
                return False
        elif value != before:
            return False
    return (wanted.get("model") is None) == (recorded.get("model") is None) if "model" in recorded else True
