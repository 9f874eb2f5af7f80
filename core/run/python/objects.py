"""Gives the functions, classes and specs passed to `grpo.train` to a host that finds them by SPEC."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from grpo.core.scoring.workers.transport import find_reference, pack_reference, pack_value, value_of
from grpo.core.text.printable import printable
from grpo.plugins._host.loading import GIVEN
from grpo.plugins._host.python_objects import spec_of
from grpo.plugins._spec.binding import BoundReward, BoundVerifier
from grpo.plugins._spec.signature import is_async
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host
from grpo.plugins.rubric import Component, RubricSpec, rubric
from grpo.plugins.specs import AgentSpec, Kind, RewardSpec, VerifierSpec

LARGEST = 64 * 2**20  # bytes of a function with all that it holds; each worker process would have a copy


class PluginObjects:
    """Registers objects with a host. `warned`: called for a function that has to run in this process."""

    def __init__(self, host: Host, warned: Callable[[str], None]) -> None:
        self._host = host
        self._warned = warned
        self._specs: dict[tuple[Kind, int], tuple[object, str]] = {}

    def ref(self, kind: Kind, value: Any) -> Any:
        """Returns a SPEC for an object; a SPEC or a table stays what it is, the object of a table replaced."""
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
        listed = values if isinstance(values, (list, tuple)) else [] if values is None else [values]
        return [self.ref(kind, value) for value in listed]

    @property
    def names(self) -> dict[Kind, list[str]]:
        """The names of the objects that were given so far, by kind."""
        by_kind: dict[Kind, list[str]] = {}
        for (kind, _), (_, ref) in self._specs.items():
            by_kind.setdefault(kind, []).append(ref.removeprefix(f"{GIVEN}/"))
        return by_kind

    def _fitted(self, spec: Any) -> Any:
        if isinstance(spec, RubricSpec):
            parts = [self._fitted_component(component) for component in spec.components]
            same = all(new is old for new, old in zip(parts, spec.components, strict=True))
            return spec if same else _again(spec, parts)
        if isinstance(spec, AgentSpec) and not spec.command and (problem := why_it_stays(spec)) is not None:
            raise UsageError(
                f"agent '{spec.name}' cannot be sent to the process that runs its episodes: {problem}. Make what it "
                f"holds inside of the function, or write it to a file and name that: agent='./my.py:{spec.name}'."
            )
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
    return rubric(
        name=spec.name,
        version=spec.version,
        components=components,
        combine=spec.combine,
        doc=spec.doc,
        cases=spec.cases,
    )


def why_it_stays(spec: RewardSpec | VerifierSpec | AgentSpec) -> str | None:
    """Returns why a function cannot travel to another process, or None when it can."""
    try:
        packed = _packed(spec)
    except Exception as error:
        return printable(f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip("."))
    if len(packed) > LARGEST:
        return f"with what it holds it has {len(packed) / 2**20:.0f} MiB"
    return None


def _packed(spec: RewardSpec | VerifierSpec | AgentSpec) -> bytes:
    if isinstance(spec, AgentSpec):
        return b"" if find_reference(spec.function) else value_of(spec.function).data
    bound = BoundReward(spec, GIVEN) if isinstance(spec, RewardSpec) else BoundVerifier(spec, GIVEN)
    return pack_reference(bound) or pack_value(bound)
