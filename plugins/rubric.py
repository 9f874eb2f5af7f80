"""Defines rubrics: several rewards in one, weighted, gated and nested. `_spec.rubric_total` combines their scores."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, get_args

from grpo.plugins._spec.rubric_total import STOPPED, Combine, Lack, Term, Value, opens, reach, total
from grpo.plugins._spec.soundness import case_fault, is_finite, metadata_fault
from grpo.plugins.errors import PluginError, SpecError, did_you_mean
from grpo.plugins.specs import Column, Option, RewardSpec
from grpo.plugins.types import Case, Completion, Isolation, Scope, Scored

if TYPE_CHECKING:
    from grpo.plugins._spec.binding import BoundReward

_STRICTEST: tuple[Isolation, ...] = ("process", "thread", "inline")


@dataclass(frozen=True, slots=True)
class Component:
    """One part of a rubric.

    Attributes:
        reward: a reward or another rubric; or its SPEC as text or table, which the host looks up.
        weight: its weight in the rubric's sum; 0: it is logged and counts nothing.
        name: what it is called inside the rubric; default: the reward's name.
        gate: where it does not pass, the components after it are not called.
        passes: the lowest score that passes, for a gate and inside "all" and "any"; default: the top of its range.
        options: the reward's options, over its defaults; the user may set each of them as `name.option`.
        timeout: seconds for one call; default: the reward's.
        distribution: where the reward comes from; default: the rubric's.
    """

    reward: RewardSpec | str | Mapping[str, Any]
    weight: float = 1.0
    name: str = ""
    gate: bool = False
    passes: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    timeout: float | None = None
    distribution: str = ""

    @property
    def spec(self) -> RewardSpec:
        """The reward. Raises PluginError if it is only named so far."""
        if isinstance(self.reward, RewardSpec):
            return self.reward
        raise PluginError(f"the component {self.reward!r} is named by a SPEC; get its rubric from the host.")


@dataclass(frozen=True, slots=True)
class RubricSpec(RewardSpec):
    """A reward that is made of others; build it with `rubric`.

    Of the attributes of a `RewardSpec`, columns, options, range, isolation, timeout and scope follow from the
    components: with one that scores groups, the scope is "group".

    Attributes:
        components: in the order in which gates stop them.
        combine: "sum" (weighted), "all" (1 when every component passes, else 0) or "any" (1 when one does).
    """

    components: tuple[Component, ...] = ()
    combine: Combine = "sum"

    @property
    def complete(self) -> bool:
        """Whether every component, at any depth, is a reward and not only named."""
        rewards = [component.reward for component in self.components]
        return all(isinstance(r, RewardSpec) and (not isinstance(r, RubricSpec) or r.complete) for r in rewards)


def rubric(
    *,
    name: str,
    components: Sequence[Component],
    version: int = 0,
    combine: Combine = "sum",
    doc: str = "",
    cases: Sequence[Case] = (),
) -> RubricSpec:
    """Makes one reward of several.

    Args:
        name: the public name.
        components: the parts, gates before what they guard.
        version: the scoring contract; raise it when scores change. It may be left out in a file, not in a package.
        combine: what is made of their scores; see `_spec.rubric_total`.
        doc: for `grpo plugins show`.
        cases: examples with the expected score of the whole.

    Raises:
        SpecError: the components do not fit together; says which and why.

    Example:
        >>> from grpo import Component, reward, rubric
        >>> @reward(version=1, range=(0.0, 1.0), isolation="inline")
        ... def polite(completion: str) -> float:
        ...     return 1.0 if "please" in completion else 0.0
        >>> @reward(version=1, range=(0.0, 1.0), isolation="inline")
        ... def brief(completion: str, *, words: int = 5) -> float:
        ...     return 1.0 if len(completion.split()) <= words else 0.0
        >>> manners = rubric(name="manners", version=1, components=[Component(polite, 0.7), Component(brief, 0.3)])
        >>> manners("Come in, please")
        1.0
        >>> manners("Come in, please", **{"brief.words": 2})
        0.7
    """
    fault = metadata_fault(name, version, 1.0)
    if fault:
        raise SpecError(f"{fault}.")
    named = tuple(replace(component, name=component.name or _own_name(component)) for component in components)
    spec = RubricSpec(
        name, version, _Plain(named, combine, ()), doc, cases=tuple(cases), components=named, combine=combine
    )
    _refuse_unusable(spec)
    return completed(spec, named) if spec.complete else spec


def completed(spec: RubricSpec, components: Sequence[Component]) -> RubricSpec:
    """Returns the rubric with its components found, and everything that follows from them. Raises SpecError."""
    spec = replace(spec, components=tuple(components))
    _refuse_unusable(spec)
    _refuse_unbounded(spec)
    columns: dict[str, Column] = {}
    for column in (column for component in components for column in component.spec.columns):
        known = columns.get(column.name, column)
        aliases = tuple(dict.fromkeys((*known.aliases, *column.aliases)))
        columns[column.name] = replace(column if column.required else known, aliases=aliases)
    isolations = [component.spec.isolation for component in components]
    scopes = [component.spec.scope for component in components]
    scope: Scope = "group" if "group" in scopes else "completion"
    fault = case_fault(spec.name, scope, spec.cases)
    if fault:
        raise SpecError(f"{fault}.")
    return replace(
        spec,
        function=_Plain(spec.components, spec.combine, tuple(columns)),
        columns=tuple(columns.values()),
        options=tuple(option for component in components for option in _options(component)),
        range=reach(spec.combine, terms(spec)),
        isolation=next(isolation for isolation in _STRICTEST if isolation in isolations),
        timeout=max(component.timeout or component.spec.timeout for component in components),
        whole=True,
        scope=scope,
    )


def terms(spec: RubricSpec) -> tuple[Term, ...]:
    """Returns what the total needs to know of each component."""
    return tuple(
        Term(
            component.weight,
            component.spec.range,
            component.spec.range[1] if component.passes is None else component.passes,
            component.gate,
        )
        for component in spec.components
    )


def bound_components(bound: BoundReward) -> list[BoundReward]:
    """Returns the components of a bound rubric as bound rewards, named `rubric.component`, within its time limit."""
    from grpo.plugins._spec.binding import BoundReward

    assert isinstance(bound.spec, RubricSpec)
    return [
        BoundReward(
            component.spec,
            component.distribution or bound.distribution,
            {**component.options, **_inner(component, bound.options)},
            alias=f"{bound.name}.{component.name}",
            timeout=min(bound.timeout, component.timeout or component.spec.timeout),
            reads=bound.reads,
            env=bound.env,
        )
        for component in bound.spec.components
    ]


def parts(bound: BoundReward) -> Iterator[BoundReward]:
    """Yields a bound reward and, of a rubric, its components at every depth, each rubric before its own."""
    yield bound
    if isinstance(bound.spec, RubricSpec):
        for component in bound_components(bound):
            yield from parts(component)


@dataclass(frozen=True, slots=True)
class _Plain:
    """A rubric as a plain function of text and columns, without a time limit; a list of completions is one group."""

    components: tuple[Component, ...]
    combine: Combine
    columns: tuple[str, ...]

    def __call__(self, completion: Completion | str | Sequence[Completion | str], *columns: Any, **named: Any) -> Any:
        from grpo.plugins._spec.binding import BoundReward

        if len(columns) > len(self.columns):
            raise TypeError(f"it takes {len(self.columns)} columns ({', '.join(self.columns)}), not {len(columns)}")
        options = {name: value for name, value in named.items() if name not in self.columns}
        given = {name: value for name, value in named.items() if name in self.columns}
        row = dict(zip(self.columns, columns, strict=False)) | given
        alone = isinstance(completion, Completion | str)
        each = [completion] if isinstance(completion, Completion | str) else completion
        members = [member if isinstance(member, Completion) else Completion(member, row=row) for member in each]
        spec = RubricSpec("rubric", 1, self, components=self.components, combine=self.combine)
        bound = bound_components(BoundReward(spec, "", options, timeout=math.inf))
        values: list[list[Value]] = [[] for _ in members]
        let_through = list(range(len(members)))
        for part, term in zip(bound, terms(spec), strict=True):
            called = dict(zip(let_through, _called(part, [members[i] for i in let_through]), strict=True))
            for index, own in enumerate(values):
                own.append(called.get(index, STOPPED))
            if term.gate:
                let_through = [index for index in let_through if opens(term, called[index])]
        totals = [total(self.combine, terms(spec), own) for own in values]
        assert not any(isinstance(value, Lack) for value in totals)  # a component that fails has raised
        return totals[0] if alone else totals


def _called(part: BoundReward, completions: Sequence[Completion]) -> list[Any]:
    """Returns a component's values for some completions of a group; without any it is not called."""
    if not completions:
        return []
    values = part.call_together(completions) if part.together else [part.call(completion) for completion in completions]
    coroutines = [value for value in (values if isinstance(values, list) else [values]) if inspect.iscoroutine(value)]
    for coroutine in coroutines:
        coroutine.close()
    if coroutines:
        raise PluginError(f"'{part.name}' is async, so its rubric cannot be called as a plain function; score it.")
    return [value.score if isinstance(value, Scored) else value for value in values]


def _own_name(component: Component) -> str:
    """Returns the name of a component that was given none; "" for a SPEC, whose name only the host can read."""
    return component.reward.name if isinstance(component.reward, RewardSpec) else ""


def _options(component: Component) -> Iterator[Option]:
    for option in component.spec.options:
        default = component.options.get(option.name, option.default)
        yield Option(f"{component.name}.{option.name}", option.type, default)


def _inner(component: Component, options: Mapping[str, Any]) -> dict[str, Any]:
    prefix = f"{component.name}."
    return {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}


def _refuse_unusable(spec: RubricSpec) -> None:
    where = f"rubric '{spec.name}'"
    if spec.combine not in get_args(Combine):
        close = did_you_mean(str(spec.combine), get_args(Combine))
        raise SpecError(f"{where}: combine is {spec.combine!r}; it is one of {', '.join(get_args(Combine))}.{close}")
    if not spec.components:
        raise SpecError(f"{where} has no components. Give it one or more.")
    for component in spec.components:
        what = f"{where}, component '{component.name or component.reward}'"
        if not is_finite(component.weight):
            raise SpecError(f"{what}: weight {component.weight!r} must be a finite number.")
        if component.timeout is not None and not (is_finite(component.timeout) and component.timeout > 0):
            raise SpecError(f"{what}: timeout {component.timeout!r} must be a finite number of seconds above 0.")
        if component.passes is not None and not is_finite(component.passes):
            raise SpecError(
                f"{what}: passes {component.passes!r} must be a finite number, the lowest score that passes."
            )
        if component.name and any(letter in "/@:,=" or letter.isspace() for letter in component.name):
            raise SpecError(f"{what}: a name has no '/', '@', ':', ',', '=' and blanks.")
        if spec.combine != "sum" and component.weight != 1.0:
            raise SpecError(
                f"{what}: weight has no meaning in a rubric that combines by '{spec.combine}'. Leave it out."
            )
        if spec.combine == "any" and component.gate:
            raise SpecError(f"{what}: a gate has no meaning in a rubric that combines by 'any'. Leave it out.")
    if spec.combine == "sum" and not any(component.weight for component in spec.components):
        raise SpecError(f"{where}: every weight is 0, so that its score is always 0. Give one of them a weight.")
    names = [component.name for component in spec.components if component.name]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(f"{where} has two components named '{name}'. Give one another name.")
        if any(other.startswith(f"{name}.") for other in names):
            raise SpecError(f"{where}: the name '{name}' begins that of another component. Give one another name.")


def _refuse_unbounded(spec: RubricSpec) -> None:
    """Refuses components whose range leaves open what passes, or what stopping before them costs."""
    guarded = ""
    for component in spec.components:
        what = f"rubric '{spec.name}', component '{component.name}'"
        known = [option.name for option in component.spec.options]
        for name in component.options:
            if name not in known:
                raise SpecError(f"{what} has no option '{name}'.{did_you_mean(name, known)}")
        low, high = component.spec.range
        if (component.gate or spec.combine != "sum") and component.passes is None and math.isinf(high):
            raise SpecError(f"{what}: its scores have no upper limit, so say from which one it passes (passes=...).")
        if component.passes is not None and component.passes > high:
            raise SpecError(f"{what}: passes {component.passes:g} is never reached, as its scores end at {high:g}.")
        lowest = low if component.weight > 0 else high
        if guarded and spec.combine == "sum" and component.weight and math.isinf(lowest):
            raise SpecError(
                f"{what} comes after the gate '{guarded}' and counts its lowest where that does not pass, but it has "
                "none. Declare the range of that reward."
            )
        guarded = component.name if component.gate and not guarded else guarded
