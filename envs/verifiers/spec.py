"""Provides the environments `verifiers:ID`: tasksets of the verifiers library, with their tools and environments."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from grpo.envs.members import imported, member_spec
from grpo.plugins.errors import OptionError, PluginNotFound
from grpo.plugins.factory_decorators import env
from grpo.plugins.specs import EnvSpec

if TYPE_CHECKING:
    import gymnasium

EXTRA = "interop"
MOST_TURNS = 50
_OURS = ("id", "system_prompt")


def make(
    member: str,
    *,
    size: int | None = None,
    system: str | None = None,
    success: float = 1.0,
    seconds: float = 45.0,
    memory: int = 4096,
    variables: str = "",
    **config: Any,
) -> gymnasium.Env[str, str]:
    """A taskset of verifiers: `verifiers:my-taskset`, with its tools and its environment of several turns, if any.

    Args:
        member: the taskset's id, that of an installed package.
        size: use only the first tasks; default: all, or 1000 of a taskset without an end.
        system: a system message instead of the tasks' own; "" sends none.
        success: a task is solved when its reward is at least this.
        seconds: on the clock, for one call; the process of an episode that takes longer is ended.
        memory: MiB of private memory of the process of an episode.
        variables: environment variables that tasks get, such as an API key, joined by "+".
        config: the taskset's own settings.

    Returns:
        An environment that scores itself.

    Raises:
        PluginNotFound: verifiers or the taskset is not installed.
        OptionError: its tasks need what a policy does not have here, or it refuses its settings.
    """
    from grpo.envs.verifiers.isolated import ApartTaskEnv, fork_server_of
    from grpo.envs.verifiers.tasks import source_of

    _config_class(member)
    if seconds <= 0 or memory < 1:
        raise OptionError(f"seconds={seconds:g} and memory={memory} must be above 0.")
    tasks = source_of(member, size, config).tasks
    options = {"member": member, "size": size, "config": config, "system": system, "success": success}
    return ApartTaskEnv(fork_server_of(options, variables, memory * 2**20), len(tasks), seconds)


def rows(member: str, split: str, *, size: int | None = None, **given: Any) -> list[Mapping[str, Any]]:
    """Returns a split of the tasks, which `held_out` divides. Raises DatasetError."""
    from grpo.envs.datasets.files import held_out
    from grpo.envs.verifiers.env import row_of
    from grpo.envs.verifiers.tasks import source_of

    ours = {option.name for option in VERIFIERS.options}
    config = {name: value for name, value in given.items() if name not in ours}
    tasks = source_of(member, size, config).tasks
    return [row_of(tasks[number], number) for number in held_out(range(len(tasks)), split, f"verifiers:{member}")]


def resolve(member: str) -> EnvSpec:
    """Returns the spec of one taskset. Raises PluginNotFound: verifiers or the taskset is not installed."""
    config = _config_class(member)
    from grpo.envs.verifiers.tasks import takes_turns

    inner = (
        (name, None if field.is_required() else _plain(field.get_default(call_default_factory=True)))
        for name, field in config.model_fields.items()
    )
    turns = MOST_TURNS if takes_turns(member) else 1
    return member_spec(VERIFIERS, member, make, inner, _OURS, dataset=partial(rows, member), max_turns=turns)


def _config_class(member: str) -> Any:
    loaders = imported("verifiers.v1.utils.loaders", EXTRA, f"verifiers:{member}")
    try:
        return loaders.taskset_config_type(member)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise PluginNotFound(
            f"verifiers has no taskset '{member}': {' '.join(str(error).split())} Install the package that has it."
        ) from error


def _plain(default: Any) -> Any:
    """A default as an option would set it: settings of a task as a mapping."""
    dump = getattr(default, "model_dump", None)
    return dump(mode="json", exclude_defaults=True) if callable(dump) else default


VERIFIERS = env(
    name="verifiers", version=1, rewards=("environment",), verifier="environment", scores_itself=True, resolve=resolve
)(make)
