"""Hands the functions, classes and specs that `grpo.train` is given to a host that finds them by SPECs.

A function of a script or a cell travels to the worker processes by value. One that cannot, because it holds a lock, a
connection or a large model, runs in this process instead, and a note says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpo.core.config.plugin_ref import PluginRef
from grpo.core.config.schema import RunConfig
from grpo.core.scoring.loop import is_async
from grpo.core.scoring.workers.transport import pack_reference, pack_value
from grpo.core.text.printable import printable
from grpo.plugins._binding import BoundReward, BoundVerifier
from grpo.plugins._given import spec_of
from grpo.plugins._loading import GIVEN
from grpo.plugins._spec_text import is_file, parse
from grpo.plugins.errors import UsageError
from grpo.plugins.host import ARGUMENT, Host
from grpo.plugins.rubric import Component, RubricSpec, rubric
from grpo.plugins.specs import Kind, RewardSpec, VerifierSpec

LARGEST = 64 * 2**20  # bytes of a function with all that it holds; each worker process would have a copy


class PluginObjects:
    """Hands objects to a host.

    Args:
        host: what is to find them.
        warned: told of a function that has to run in this process.
    """

    def __init__(self, host: Host, warned: Callable[[str], None]) -> None:
        self._host = host
        self._warned = warned
        self._specs: dict[tuple[Kind, int], tuple[object, str]] = {}

    def ref(self, kind: Kind, value: Any) -> Any:
        """Returns a SPEC for an object; what is a SPEC or a table already stays it, the object of a table replaced.

        Raises:
            UsageError: it cannot be a plugin of that kind.
        """
        if isinstance(value, str):
            return value
        if isinstance(value, Mapping):
            name = value.get("name")
            return dict(value) if name is None else {**value, "name": self.ref(kind, name)}
        if (kind, id(value)) not in self._specs:
            known = next((spec for spec in self._host.registrations(kind) if spec.spec is value), None)
            spec = spec_of(kind, value) if known is None else known.spec
            fitted = self._fitted(spec) if known is None else spec
            self._specs[kind, id(value)] = value, self._host.give(kind, fitted)  # the object lives, and so its id
        return self._specs[kind, id(value)][1]

    def refs(self, kind: Kind, values: Any) -> list[Any]:
        """Returns the SPECs of one object, or of several in a list."""
        listed = values if isinstance(values, (list, tuple)) else [] if values is None else [values]
        return [self.ref(kind, value) for value in listed]

    @property
    def names(self) -> dict[Kind, list[str]]:
        """The names of the objects that were given so far, by kind."""
        found: dict[Kind, list[str]] = {}
        for (kind, _), (_, ref) in self._specs.items():
            found.setdefault(kind, []).append(ref.removeprefix(f"{GIVEN}/"))
        return found

    def _fitted(self, spec: Any) -> Any:
        """Returns a spec that can run: in this process what cannot travel to another one."""
        if isinstance(spec, RubricSpec):
            parts = [self._fitted_component(component) for component in spec.components]
            same = all(new is old for new, old in zip(parts, spec.components, strict=True))
            return spec if same else _again(spec, parts)
        if not isinstance(spec, (RewardSpec, VerifierSpec)) or spec.isolation != "process" or is_async(spec.function):
            return spec
        problem = why_it_stays(spec)
        if problem is None:
            return spec
        self._warned(
            f"{spec.kind} '{spec.name}' cannot be sent to a worker process: {problem}. It runs in this process, one "
            "call after the other and without a time limit."
        )
        return replace(spec, isolation="inline")

    def _fitted_component(self, component: Component) -> Component:
        if not isinstance(component.reward, RewardSpec):
            return component
        fitted = self._fitted(component.reward)
        return component if fitted is component.reward else replace(component, reward=fitted)


def _again(spec: RubricSpec, components: list[Component]) -> RubricSpec:
    """Returns the same rubric of other components."""
    return rubric(
        name=spec.name,
        version=spec.version,
        components=components,
        combine=spec.combine,
        doc=spec.doc,
        cases=spec.cases,
    )


def why_it_stays(spec: RewardSpec | VerifierSpec) -> str | None:
    """Returns why a function cannot travel to a worker process, or None when it can."""
    bound = BoundReward(spec, GIVEN) if isinstance(spec, RewardSpec) else BoundVerifier(spec, GIVEN)
    try:
        packed = pack_reference(bound) or pack_value(bound)
    except Exception as error:
        return printable(f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip("."))
    if len(packed) > LARGEST:
        return f"with what it holds it has {len(packed) / 2**20:.0f} MiB"
    return None


def given_of(config: RunConfig) -> dict[Kind, list[str]]:
    """Returns the names of the plugins of a run that were given as objects, by kind."""
    found: dict[Kind, list[str]] = {}
    for kind, names in names_of(config).items():
        given = [name.removeprefix(f"{GIVEN}/") for name in names if name.startswith(f"{GIVEN}/")]
        if given:
            found[kind] = list(dict.fromkeys(given))
    return found


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
    }


def names_of(config: RunConfig) -> dict[Kind, list[str]]:
    """Returns the names of the plugins of a run as its configuration has them, without their options, by kind."""
    return {kind: [_name(ref) for ref in some] for kind, some in refs_of(config).items()}


def asked_otherwise(recorded: RunConfig, wanted: RunConfig) -> str | None:
    """Returns a plugin whose options, weight or the like are not those that the run has, or None."""
    before = refs_of(recorded)
    for kind, refs in refs_of(wanted).items():
        for ref in refs:
            own = _said_of(ref)
            others = [_said_of(other) for other in before[kind] if _name(other) == _name(ref)]
            if others and not any(own.items() <= other.items() for other in others):
                no_other = [name for name in own if all(own[name] != other.get(name) for other in others)]
                name = (no_other or [*own])[0]
                has = ", ".join(str(other.get(name, "its default")) for other in others)
                return f"{kind} '{_name(ref).removeprefix(f'{GIVEN}/')}' with {name}={own[name]}; it has {name}={has}"
    return None


def _said_of(ref: PluginRef) -> dict[str, str]:
    """Returns what a SPEC or a table says of a plugin beside its name."""
    text = parse(ref)
    said = {name: json.dumps(value.parsed, sort_keys=True, default=str) for name, value in text.options.items()}
    more = {"weight": text.weight, "as": text.alias or None, "timeout": text.timeout, "reads": text.reads}
    return said | {name: str(value) for name, value in more.items() if value is not None}


def how_to_resume(config: RunConfig, path: Path, steps: int | None = None) -> str:
    """Returns what continues a run: the command, or the call where objects of Python have to be given again.

    Args:
        config: of the run.
        path: its directory.
        steps: that it is to have, where it is made longer.
    """
    given = given_of(config)
    if not given:
        return f"grpo run --resume {path}" + (f" --steps {steps}" if steps else "")
    again = [f"{ARGUMENT[kind]}={_listed(kind, names)}" for kind, names in given.items()]
    again += [f"steps={steps}"] if steps else []
    return f"grpo.train(resume={str(path)!r}, {', '.join(again)})"


def refuse_missing(
    config: RunConfig, path: Path, again: Mapping[Kind, Sequence[str]] | None = None, steps: int | None = None
) -> None:
    """Refuses to continue a run without the objects that it was given, which no other process has.

    Args:
        config: of the run.
        path: its directory.
        again: the names of those that are given again, by kind; none on the command line.
        steps: that it is to have, where it is made longer.

    Raises:
        UsageError: says what is missing and how to go on.
    """
    there = again or {}
    found = {kind: [n for n in names if n not in there.get(kind, ())] for kind, names in given_of(config).items()}
    told = [f"the {kind} '{name}'" for kind, names in found.items() for name in names]
    if told:
        raise UsageError(
            f"{path} cannot be continued without {' and '.join(told)}: defined in a script or a notebook and given to "
            f"grpo.train. Continue there, with the same again: {how_to_resume(config, path, steps)}"
        )


def _name(ref: PluginRef) -> str:
    """Returns what a SPEC or a table names, without options."""
    text = str(ref["name"]) if isinstance(ref, Mapping) else ref
    return text if is_file(text) else text.partition(":")[0]


def _listed(kind: Kind, names: list[str]) -> str:
    return f"[{', '.join(names)}]" if kind == "reward" or len(names) > 1 else names[0]
