"""Starts a run's episodes, binds rewards and verifiers, and decides the steps, from environments with rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grpo.core.config.defaults import EMBEDDED_STEPS, EPOCHS, MADE_EPISODES
from grpo.core.config.schema import RunConfig
from grpo.core.env.episodes import Episode, episodes_of, sample_of
from grpo.core.env.mixture import RunEnv, refuse_missing_columns, refuse_split_groups, rewards_by_env, verifiers_by_env
from grpo.core.env.processes import starting_place
from grpo.core.planning.facts import Facts
from grpo.core.planning.held_out import HeldOutPart, hold_out
from grpo.plugins.errors import UsageError

Rows = Mapping[str, Sequence[Episode]]  # an environment's name to its training episodes


@dataclass(frozen=True, slots=True)
class StepsPart:
    """How much is trained on, under the names of the settings."""

    steps: int
    limit: int | None


def decide_steps(config: RunConfig, facts: Facts, rows: Mapping[str, Sequence[Episode]]) -> StepsPart:
    """Chooses the number of steps; episodes that a lone environment makes are recorded as limit, for a resume."""
    train, iterations = config.train, config.loss.num_iterations
    made = episodes_to_make(config, train.limit, train.steps or EMBEDDED_STEPS)
    of_rows = sum(share for env, share in zip(facts.envs, facts.shares, strict=True) if env.name in rows)
    needed = math.ceil(sum(map(len, rows.values())) / of_rows) if rows else made
    steps = train.steps
    if steps is None:
        if facts.source.embedded and train.epochs is None:
            steps = EMBEDDED_STEPS
        else:
            generations = max(1, math.ceil((train.epochs or EPOCHS) * needed / train.prompts_per_step))
            steps = generations * iterations
    return StepsPart(steps, train.limit if rows or len(facts.envs) > 1 else made)


def episodes_to_make(config: RunConfig, limit: int | None, steps: int) -> int:
    """Returns how many episodes an environment without rows makes for a run of so many steps."""
    return limit or max(MADE_EPISODES, config.train.prompts_per_step * steps)


def read_rows(config: RunConfig, facts: Facts) -> Rows:
    """Starts the training episodes of the environments that have rows. Raises DatasetError, PluginError."""
    seconds, count, limit = config.rollout.step_timeout, config.rollout.env_processes, config.train.limit
    return {
        env.name: episodes_of(env, "train", limit=limit, unbounded=0, opened=starting_place(env, count, seconds))
        for env in facts.envs
        if env.spec.dataset is not None
    }


def start_envs(config: RunConfig, facts: Facts, rows: Rows, steps: StepsPart) -> tuple[tuple[RunEnv, ...], list[str]]:
    """Starts the episodes of the other environments, and gives each environment its rewards, verifier and test rows.

    Returns the environments, and notes on what is held out. Raises UsageError if a reward cannot be used, an
    environment has none, or rows lack what one reads; DatasetError for unusable or no rows; PluginError if an
    environment breaks the contract.
    """
    seconds, size, count = config.rollout.step_timeout, config.evaluation.size, config.rollout.env_processes
    places = {env.name: starting_place(env, count, seconds) for env in facts.envs}
    made = episodes_to_make(config, steps.limit, steps.steps)
    train = {
        env.name: rows[env.name]
        if env.name in rows
        else episodes_of(env, "train", limit=made, unbounded=made, opened=places[env.name])
        for env in facts.envs
    }
    examples = [train[env.name][0].row for env in facts.envs]
    rewards = rewards_by_env(config, facts.host, facts.envs, examples)
    verifiers = verifiers_by_env(config, facts.host, facts.envs, examples)
    parts: list[RunEnv] = []
    notes: list[str] = []
    for env, bound, verifier, share in zip(facts.envs, rewards, verifiers, facts.shares, strict=True):
        if not bound:
            note = f" {env.spec.note}" if env.spec.note else ""
            text = f"env '{env.name}' has no default rewards. Name at least one with --reward.{note}"
            raise UsageError(env.spec.unjudged or text)
        divided = HeldOutPart(train[env.name])
        if size and verifier:
            divided = hold_out(env, train[env.name], size, made=size, opened=places[env.name])
            notes += divided.notes
        parts.append(RunEnv(env, bound, verifier, divided.train, divided.held_out, share))
    for part in parts:
        for episode in (*sample_of(part.train), *sample_of(part.held_out)):
            refuse_missing_columns(episode, part.plugins)
    every = [reward for part in parts for reward in part.rewards]
    refuse_split_groups(every, config.train.prompts_per_step, facts.processes)
    return tuple(parts), notes


def refuse_no_demonstrations(config: RunConfig, envs: Sequence[RunEnv]) -> None:
    """Refuses a supervised warm-up where no row has a worked answer."""
    if config.train.warmup_steps and not any(episode.actions for part in envs for episode in sample_of(part.train)):
        names = ", ".join(f"'{part.name}'" for part in envs)
        rows = any(part.name == "rows" for part in envs)
        remedy = (
            "Name the column that holds them, as in --env rows:dataset=FILE,demonstration=COLUMN, or leave it out."
            if rows
            else "Leave it out."
        )
        raise UsageError(f"--warmup-steps needs worked answers, and env {names} has none for these rows. {remedy}")
