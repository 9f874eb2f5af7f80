"""Looks up the components that a rubric names by SPEC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from grpo.plugins._host.loading import Registration
from grpo.plugins._spec.options import checked_options
from grpo.plugins._spec.spec_text import SpecText, Value, parse
from grpo.plugins.errors import SpecError, UsageError
from grpo.plugins.rubric import Component, RubricSpec, completed
from grpo.plugins.specs import RewardSpec

Find = Callable[[SpecText], Registration]


def with_components(known: Registration, find: Find, inside: tuple[str, ...] = ()) -> Registration:
    """Returns the registration of a reward with every component of a rubric found, at any depth.

    `known`: a reward; one that is no rubric, or a rubric that is whole, comes back as it is. `find`: returns the reward
    that a SPEC names, its own components not looked at. `inside`: the rubrics, as distribution/name, that this one is a
    component of. Raises UsageError: a component cannot be found or does not fit; names the rubric.
    """
    spec = known.spec
    if not isinstance(spec, RubricSpec) or spec.complete:
        return known
    try:
        parts = [_resolved(known, component, find, inside) for component in spec.components]
        return replace(known, spec=completed(spec, parts))
    except (UsageError, SpecError) as error:
        text = str(error)
        raise UsageError(text if text.startswith("rubric ") else f"rubric '{spec.name}': {text}") from error


def _resolved(rubric: Registration, component: Component, find: Find, inside: tuple[str, ...]) -> Component:
    reward = component.reward
    if isinstance(reward, RewardSpec):
        inner = with_components(replace(rubric, spec=reward), find, inside)
        return replace(component, reward=_reward(inner))
    text = parse(reward)
    if text.weight is not None:
        raise UsageError(
            f"'{text.written}': the weight of a component stands beside its SPEC: weight = {text.weight:g}."
        )
    if text.reads is not None:
        raise UsageError(f"'{text.written}': what is read belongs to the rubric as a whole: write reads= in its SPEC.")
    for name in component.options:
        if name in text.options:
            raise UsageError(f"'{text.written}': '{name}' stands in the SPEC and under options. Keep one.")
    given = {name: Value(value) for name, value in component.options.items()}
    known = find(text)
    place = f"{known.distribution}/{known.spec.name}"
    if place in inside:
        raise UsageError(f"rubric '{known.spec.name}' contains itself. Break the circle.")
    known = with_components(known, find, (*inside, place))
    spec = _reward(known)
    return replace(
        component,
        reward=spec,
        name=component.name or text.alias or spec.name,
        options=checked_options(spec, known.distribution, {**text.options, **given}, text.unnamed),
        timeout=component.timeout if text.timeout is None else text.timeout,
        distribution=known.distribution,
    )


def _reward(known: Registration) -> RewardSpec:
    assert isinstance(known.spec, RewardSpec)
    return known.spec
