"""Binds the environments of a run to their rewards, verifiers and shares of the prompts.

With several, every group belongs to one environment; rewards and verifiers then carry its name (`gsm8k.proximity`) and
score its completions only. Its rewards are the first of: `env_rewards`, where it names the environment; those of
`rewards` whose columns its rows have, if any; its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from grpo.core.config.schema import RunConfig
from grpo.core.env.episodes import Episode
from grpo.core.policy.weights import training_source
from grpo.plugins._spec.binding import BoundEnv, BoundReward, BoundVerifier
from grpo.plugins.errors import UsageError, did_you_mean
from grpo.plugins.host import Host
from grpo.plugins.types import Row


@dataclass(frozen=True, slots=True)
class RunEnv:
    env: BoundEnv  # the environment with its options and its weight
    rewards: tuple[BoundReward, ...]  # what its completions are scored with
    verifier: BoundVerifier | None  # what decides its accuracy, or None
    # train, held_out: its episodes; `held_out` is empty when evaluation is off or it has no test rows
    train: Sequence[Episode]
    held_out: Sequence[Episode]
    share: float = 1.0  # of all prompts

    @property
    def name(self) -> str:
        return self.env.name

    @property
    def plugins(self) -> tuple[BoundReward | BoundVerifier, ...]:
        """Everything that scores or judges its completions."""
        return (*self.rewards, *([self.verifier] if self.verifier else []))


def bound_envs(config: RunConfig, host: Host) -> tuple[BoundEnv, ...]:
    """Binds the environments of a configuration. Raises UsageError."""
    envs = with_session(tuple(with_dataset(host.env(source), config) for source in config.envs), config)
    names = [env.name for env in envs]
    for name in config.env_rewards:
        if name not in names:
            raise UsageError(
                f"env_rewards: no environment of this run is named '{name}'.{did_you_mean(name, names)} It has: "
                f"{', '.join(names)}."
            )
    if len(envs) == 1:
        return envs
    for env in envs:
        if names.count(env.name) > 1:
            raise UsageError(
                f"two environments are named '{env.name}', and their metrics would mix. Give one another name with as, "
                f"as in --env {env.spec.name}:as={env.spec.name.rpartition(':')[2]}_2."
            )
        if "/" in env.name:
            raise UsageError(f"env '{env.name}': in a run of several environments it needs a name. Add as=NAME to it.")
        if env.weight <= 0:
            raise UsageError(f"env '{env.name}': weight={env.weight:g} must be above 0. Leave the environment out.")
    if config.dataset is not None:
        raise UsageError(
            f"--dataset {config.dataset}: this run has several environments. Set it in the SPEC of the one that it is "
            f"for, as in --env {names[0]}:dataset={config.dataset}."
        )
    return envs


def with_session(envs: tuple[BoundEnv, ...], config: RunConfig) -> tuple[BoundEnv, ...]:
    """Sets the option `session` of environments that have one from --session. Raises UsageError where none has."""
    if config.session is None:
        return envs
    have = [env.spec.in_session for env in envs]
    if not any(have):
        names = ", ".join(env.name for env in envs)
        raise UsageError(f"--session {config.session}: episodes of {names} run in no session. Leave it out.")
    return tuple(
        replace(env, options={**env.options, "session": config.session}) if has else env
        for env, has in zip(envs, have, strict=True)
    )


def with_dataset(env: BoundEnv, config: RunConfig) -> BoundEnv:
    """Sets the option `dataset`: --dataset, or the hub's rows if a model is named. Raises UsageError, DatasetError."""
    defaults = {option.name: option.default for option in env.spec.options}
    several = len(config.envs) > 1
    value = None if several else config.dataset
    hub = env.spec.hub_dataset if "dataset" not in env.options else None
    if value is None and hub is not None and not training_source(config.model).embedded:
        value = hub
    if value is None:
        return env.settled()
    if "dataset" not in defaults:
        raise UsageError(f"env '{env.name}' has no option 'dataset', so --dataset {value} cannot be used with it.")
    return replace(env, options={**env.options, "dataset": value}).settled()


def rewards_by_env(
    config: RunConfig, host: Host, envs: Sequence[BoundEnv], rows: Sequence[Row]
) -> list[tuple[BoundReward, ...]]:
    """Binds the rewards of each environment; `rows` holds an example of its rows for each. Raises UsageError."""
    several = len(envs) > 1
    by_env = [rewards_of(config, host, env, row, fit=several) for env, row in zip(envs, rows, strict=True)]
    used = {reward.name for rewards in by_env for reward in rewards}
    for reward in host.rewards(config.rewards):
        if several and reward.name not in used:
            columns = ", ".join(str(column) for column in reward.spec.columns if column.required) or "none"
            raise UsageError(
                f"reward '{reward.name}' scores no environment of this run: it reads the columns {columns}, and each "
                "environment lacks one of them or has rewards of its own under env_rewards. Leave it out."
            )
    return [owned(env, rewards) if several else rewards for env, rewards in zip(envs, by_env, strict=True)]


def rewards_of(config: RunConfig, host: Host, env: BoundEnv, row: Row, *, fit: bool) -> tuple[BoundReward, ...]:
    """Binds the rewards of one environment; with `fit`, of the user's only those whose columns the row has."""
    if env.name in config.env_rewards:
        return tuple(host.rewards(config.env_rewards[env.name]))
    given = [reward for reward in host.rewards(config.rewards) if not fit or not missing_columns(reward, row)]
    return tuple(given or host.default_rewards(env))


def owned(env: BoundEnv, rewards: Iterable[BoundReward]) -> tuple[BoundReward, ...]:
    """Returns rewards that carry an environment's name, once, and score its completions only."""
    rewards = tuple(rewards)
    names = {f"{env.name}.{reward.name}" for reward in rewards}

    def alias(name: str) -> str:
        return name if name.startswith(f"{env.name}.") and name not in names else f"{env.name}.{name}"

    return tuple(replace(reward, alias=alias(reward.name), env=env.name) for reward in rewards)


def verifier_of(config: RunConfig, host: Host, env: BoundEnv, row: Row, *, fit: bool) -> BoundVerifier | None:
    """Binds the verifier of the run (with `fit`, where the row has its columns), or else the environment's own."""
    if config.verifier is not None:
        given = host.verifier(config.verifier)
        if not fit or not missing_columns(given, row):
            return given
    return host.default_verifier(env)


def verifiers_by_env(
    config: RunConfig, host: Host, envs: Sequence[BoundEnv], rows: Sequence[Row]
) -> list[BoundVerifier | None]:
    """Binds the verifier of each environment, under its name. Raises UsageError if a verifier is for none."""
    several = len(envs) > 1
    by_env = [verifier_of(config, host, env, row, fit=several) for env, row in zip(envs, rows, strict=True)]
    given = None if config.verifier is None else host.verifier(config.verifier)
    if given is not None and given not in by_env:
        columns = ", ".join(str(column) for column in given.spec.columns if column.required)
        raise UsageError(
            f"verifier '{given.name}' judges no environment of this run: it reads the columns {columns}, and each "
            "environment lacks one of them. Leave it out."
        )
    if not several:
        return by_env
    return [
        verifier and replace(verifier, alias=f"{env.name}.{verifier.name}", env=env.name)
        for env, verifier in zip(envs, by_env, strict=True)
    ]


def missing_columns(plugin: BoundReward | BoundVerifier, row: Mapping[str, object]) -> list[str]:
    """Returns the columns that a reward or verifier needs and a row lacks."""
    return [str(column) for column in plugin.spec.columns if column.required and column.found_in(row) is None]


def nothing_judges(env: BoundEnv) -> UsageError:
    """Returns the error of an environment that has neither a verifier nor rewards."""
    why = f" ({env.spec.note.rstrip('.')})" if env.spec.note else ""
    text = f"env '{env.name}' has neither a verifier nor rewards{why}. Name a reward with --reward."
    return UsageError(env.spec.unjudged or text)


def refuse_missing_columns(episode: Episode, plugins: Iterable[BoundReward | BoundVerifier]) -> None:
    """Refuses rows that lack a column which a reward or the verifier needs."""
    for bound in plugins:
        missing = missing_columns(bound, episode.row)
        if missing:
            close = did_you_mean(missing[0], episode.row)
            advice = close or " Add it to the rows; in a function of yours, a parameter with a default may be missing."
            raise UsageError(
                f"{bound.spec.kind} '{bound.name}' needs the column{'s' if len(missing) > 1 else ''} "
                f"{', '.join(missing)}, but {episode.place or f'row {episode.index}'} has: "
                f"{', '.join(episode.row) or 'none'}.{advice}"
            )


def refuse_split_groups(rewards: Sequence[BoundReward], prompts: int, processes: int) -> None:
    """Refuses rewards of groups where a process would have a part of a group: each scores what it sampled."""
    grouped = next((reward for reward in rewards if reward.grouped), None)
    if grouped is not None and prompts % processes:
        raise UsageError(
            f"reward '{grouped.name}' scores the completions of a prompt together, and {processes} processes that "
            f"share {prompts} prompts would split a group. Choose train.prompts_per_step as a multiple of {processes}, "
            f"for example {-(-prompts // processes) * processes}."
        )
