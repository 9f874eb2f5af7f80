"""Provides the environments `reasoning_gym:NAME`: the procedural datasets of reasoning-gym with their own graders."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from grpo.envs.members import imported, member_spec
from grpo.plugins.errors import OptionError, PluginNotFound, did_you_mean
from grpo.plugins.factory_decorators import env
from grpo.plugins.specs import EnvSpec

if TYPE_CHECKING:
    import gymnasium

EXTRA = "reasoning-gym"
MOST_SECONDS = 60.0
SYSTEM = "Give your final answer between <answer> and </answer>."


def make(
    member: str,
    *,
    size: int = 500,
    data_seed: int = 0,
    system: str = SYSTEM,
    as_published: bool = False,
    sandbox: str = "",
    seconds: float = 5.0,
    **config: Any,
) -> gymnasium.Env[str, str]:
    """A dataset of reasoning-gym: `reasoning_gym:chain_sum`, one question and one answer.

    Args:
        member: the dataset's name.
        size: problems in each split.
        data_seed: seeds the problems; the two splits have none in common by their seeds.
        system: the system message; "" sends none. The grader reads what stands in the last <answer>, or else all.
        as_published: also answers that are known to cheat the grader get what it gives them.
        sandbox: the SPEC of the sandbox that the grader runs in, or "process" for a process with limits that is none;
            default: local, or else that process.
        seconds: of processor time that the grader may take for one answer; a slower answer is wrong.
        config: the dataset's own settings.

    Returns:
        An environment of one turn that scores itself.

    Raises:
        PluginNotFound: there is no such dataset, or reasoning-gym is not installed.
        OptionError: a setting that the dataset refuses, or a time limit that is none.
        UsageError: no sandbox has that SPEC.
        SandboxUnavailable: this machine cannot run it.
    """
    from grpo.envs.reasoning_gym.env import ReasoningEnv, items_of

    _classes(member)
    if not 0 < seconds <= MOST_SECONDS:
        raise OptionError(f"seconds={seconds:g} must be above 0 and at most {MOST_SECONDS:g}.")
    items = {split: items_of(member, split, size, data_seed, config) for split in ("train", "test")}
    return ReasoningEnv(member, items, system, as_published=as_published, sandbox=sandbox, seconds=seconds)


def rows(member: str, split: str, *, size: int = 500, data_seed: int = 0, **given: Any) -> list[Mapping[str, Any]]:
    """Returns the problems of a split, which the dataset makes."""
    from grpo.envs.reasoning_gym.env import items_of

    ours = {option.name for option in REASONING_GYM.options}
    config = {name: value for name, value in given.items() if name not in ours}
    items = items_of(member, split, size, data_seed, config)
    return [items.row(index) for index in range(size)]


def resolve(member: str) -> EnvSpec:
    """Returns the spec of one dataset. Raises PluginNotFound: unknown dataset, or reasoning-gym is not installed."""
    from grpo.envs.reasoning_gym.known_exploits import warning

    _, config = _classes(member)
    inner = (
        (field.name, None if field.default is dataclasses.MISSING else field.default)
        for field in dataclasses.fields(config)
    )
    return member_spec(
        REASONING_GYM, member, make, inner, ["seed"], dataset=partial(rows, member), note=warning(member)
    )


def _classes(member: str) -> tuple[Any, Any]:
    imported("reasoning_gym", EXTRA, f"reasoning_gym:{member}")
    from reasoning_gym.factory import DATASETS

    if member not in DATASETS:
        raise PluginNotFound(
            f"reasoning-gym has no dataset '{member}'.{did_you_mean(member, DATASETS)} It has {len(DATASETS)}: "
            f"{', '.join(sorted(DATASETS))}."
        )
    if member == "composite":
        raise OptionError(
            "reasoning_gym:composite mixes other datasets. Name them one by one, each with its weight: "
            "--env reasoning_gym:chain_sum:weight=2 --env reasoning_gym:leg_counting"
        )
    classes: tuple[Any, Any] = DATASETS[member]
    return classes


REASONING_GYM = env(
    name="reasoning_gym",
    version=1,
    rewards=("environment",),
    verifier="environment",
    scores_itself=True,
    resolve=resolve,
)(make)
