"""Names the plugins of a run that were given as Python objects, and explains how to continue such a run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from grpo.core.config.schema import RunConfig
from grpo.core.config.setting import PluginRef
from grpo.plugins._host.loading import GIVEN
from grpo.plugins._spec.spec_text import is_file, parse
from grpo.plugins.errors import UsageError
from grpo.plugins.host import ARGUMENT
from grpo.plugins.specs import Kind


def given_of(config: RunConfig) -> dict[Kind, list[str]]:
    """Returns the names of the plugins of a run that were given as objects, by kind."""
    by_kind: dict[Kind, list[str]] = {}
    for kind, names in names_of(config).items():
        given = [name.removeprefix(f"{GIVEN}/") for name in names if name.startswith(f"{GIVEN}/")]
        if given:
            by_kind[kind] = list(dict.fromkeys(given))
    return by_kind


def refs_of(config: RunConfig) -> dict[Kind, list[PluginRef]]:
    """Returns the plugins of a run as its configuration has them, by kind."""
    rewards = [*config.rewards, *(ref for own in config.env_rewards.values() for ref in own)]
    verifiers = [] if config.verifier is None else [config.verifier]
    return {
        "env": [*config.envs],
        "reward": rewards,
        "verifier": verifiers,
        "loss": [config.loss.type],
        "advantage": [config.loss.advantage],
        "sampler": [] if config.sampler is None else [config.sampler],
        "agent": [] if config.agent is None else [config.agent],
    }


def names_of(config: RunConfig) -> dict[Kind, list[str]]:
    """Returns the names of the plugins of a run as its configuration has them, without their options, by kind."""
    return {kind: [_name(ref) for ref in some] for kind, some in refs_of(config).items()}


def asked_otherwise(recorded: RunConfig, wanted: RunConfig) -> str | None:
    """Returns a plugin whose options, weight or the like are not those that the run has, or None."""
    before = refs_of(recorded)
    for kind, refs in refs_of(wanted).items():
        for ref in refs:
            own = _details(ref)
            others = [_details(other) for other in before[kind] if _name(other) == _name(ref)]
            if others and not any(own.items() <= other.items() for other in others):
                no_other = [name for name in own if all(own[name] != other.get(name) for other in others)]
                name = (no_other or [*own])[0]
                has = ", ".join(str(other.get(name, "its default")) for other in others)
                return f"{kind} '{_name(ref).removeprefix(f'{GIVEN}/')}' with {name}={own[name]}; it has {name}={has}"
    return None


def _details(ref: PluginRef) -> dict[str, str]:
    text = parse(ref)
    shown = {name: json.dumps(value.parsed, sort_keys=True, default=str) for name, value in text.options.items()}
    more = {
        "weight": text.weight,
        "as": text.alias or None,
        "timeout": text.timeout,
        "reads": text.reads,
        "mcp": text.mcp,
    }
    return shown | {name: str(value) for name, value in more.items() if value is not None}


def how_to_resume(config: RunConfig, path: Path, steps: int | None = None) -> str:
    """Returns what continues a run: the command, or the call where objects of Python have to be given again."""
    given = given_of(config)
    if not given:
        return f"grpo run --resume {shlex.quote(str(path))}" + (f" --steps {steps}" if steps else "")
    again = [f"{ARGUMENT[kind]}={_listed(kind, names)}" for kind, names in given.items()]
    again += [f"steps={steps}"] if steps else []
    return f"grpo.train(resume={str(path)!r}, {', '.join(again)})"


def refuse_missing(
    config: RunConfig, path: Path, again: Mapping[Kind, Sequence[str]] | None = None, steps: int | None = None
) -> None:
    """Refuses to continue a run without the objects that it was given, which no other process has."""
    there = again or {}
    missing = {kind: [n for n in names if n not in there.get(kind, ())] for kind, names in given_of(config).items()}
    lost = [f"the {kind} '{name}'" for kind, names in missing.items() for name in names]
    if lost:
        raise UsageError(
            f"{path} cannot be continued without {' and '.join(lost)}: defined in a script or a notebook and given to "
            f"grpo.train. Continue there, with the same again: {how_to_resume(config, path, steps)}"
        )


def _name(ref: PluginRef) -> str:
    text = str(ref["name"]) if isinstance(ref, Mapping) else ref
    return text if is_file(text) else text.partition(":")[0]


def _listed(kind: Kind, names: list[str]) -> str:
    return f"[{', '.join(names)}]" if kind == "reward" or len(names) > 1 else names[0]
