"""Finds, checks, looks up and binds every installed plugin; a broken one stops nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from grpo.plugins._host.discovery import installed_entries
from grpo.plugins._host.entry_points import Entry
from grpo.plugins._host.loading import GIVEN, Problem, Registration, load_entry, problem_of
from grpo.plugins._host.names import clash_problems, find_registration, passed_over
from grpo.plugins._host.probe import faults_of
from grpo.plugins._spec.options import checked_options
from grpo.plugins._spec.spec_text import SpecText, Value, parse
from grpo.plugins.error_lines import one_line
from grpo.plugins.errors import OptionError, PluginNotFound, SpecError, UsageError, plural
from grpo.plugins.rubric import Component, RubricSpec, completed, parts
from grpo.plugins.specs import KINDS, EnvSpec, Kind, RewardSpec, Spec, VerifierSpec
from grpo.plugins.types import Reads

if TYPE_CHECKING:
    from grpo.plugins._spec.binding import (
        Bound,
        BoundAdvantage,
        BoundAgent,
        BoundEnv,
        BoundLoss,
        BoundReward,
        BoundSampler,
        BoundSandbox,
        BoundSession,
        BoundVerifier,
    )
    from grpo.plugins.events import Event

    _Plain = TypeVar("_Plain", BoundSandbox, BoundSession, BoundLoss, BoundAdvantage, BoundSampler, BoundAgent)

__all__ = ["Host", "Problem", "Registration"]

_Made = TypeVar("_Made")
Source = str | Mapping[str, Any]
Find = Callable[[SpecText], Registration]
ARGUMENT: dict[Kind, str] = {**{kind: kind for kind in KINDS}, "reward": "rewards"}


class Host:
    """The plugins of a set of entry points.

    A `home` argument names the distribution that wins for an ambiguous short name, as in an environment's own SPECs.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._given: dict[tuple[Kind, str], Registration] = {}
        self._preferred: dict[tuple[Any, Any], str] = {}  # kind and name to the distribution that a resumed run used
        self._noted: set[str] = set()
        self._loaded = [load_entry(entry) for entry in entries]
        self._registrations = tuple(known for loaded in self._loaded for known in loaded.registrations)
        self._problems = [problem for loaded in self._loaded for problem in loaded.problems]
        self._registrations = tuple(self._whole_rubrics())
        self._problems += clash_problems(self._registrations)

    @classmethod
    def discover(cls) -> Host:
        """Loads the installed plugins; GRPO_PLUGINS=a,b keeps those entry points or distributions only.

        New or changed ones are tried in a child process first. Raises UsageError for an uninstalled name in
        GRPO_PLUGINS.
        """
        entries = installed_entries()
        return cls(replace(entry, fault=fault) for entry, fault in zip(entries, faults_of(entries), strict=True))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the installed plugins, in the order of discovery."""
        return tuple(self._problems)

    def registrations(self, kind: Kind | None = None) -> tuple[Registration, ...]:
        """Returns the usable plugins of one kind, or all."""
        return tuple(known for known in self._registrations if kind in (None, known.kind))

    def give(self, kind: Kind, spec: Spec) -> str:
        """Adds a plugin of this process alone; returns its unique SPEC. UsageError: kind and name are taken."""
        installed = next((known for known in self._registrations if known.spec is spec), None)
        if installed is not None:
            return f"{installed.distribution}/{spec.name}"
        known = self._given.setdefault((kind, spec.name), Registration(kind, spec, GIVEN, "", spec.name))
        if known.spec is not spec:
            raise UsageError(
                f"two {plural(kind)} named '{spec.name}' were given. Give one of them another name, as in "
                f"{kind}(name='{spec.name}_2')(...)."
            )
        return f"{GIVEN}/{spec.name}"

    def prefer(self, locks: Iterable[Mapping[str, Any]]) -> None:
        """Has each name that several distributions offer mean what it meant when these records of plugins were made."""
        self._preferred = {(lock.get("kind"), lock.get("plugin")): str(lock.get("distribution")) for lock in locks}

    def find(self, kind: Kind, name: str, home: str = "") -> Registration:
        """Returns the plugin of that kind that `[dist/]name[@version]` or `./file.py:function` names.

        Raises PluginNotFound for an unknown name, distribution, version, file or function; AmbiguousName if several
        distributions offer the short name, none of them built in, or a file offers several plugins; UsageError for bad
        syntax.
        """
        return self._find_with_components(kind, parse(name), home)

    def reward(self, source: Source, home: str = "") -> BoundReward:
        """Binds a reward to the options, weight, alias and time limit of a SPEC or of a table.

        Raises PluginNotFound and AmbiguousName as `find`; OptionError for an unknown, missing or mistyped option;
        UsageError for bad syntax, or options that the plugin refuses; PluginError if it declares an option with an
        impossible type, or its `prepare` is broken.
        """
        from grpo.plugins._spec.binding import BoundReward

        text = parse(source)
        _refuse(text, "reward", mcp=text.mcp)
        known, options = self._bound("reward", text, home)
        spec: Any = known.spec
        bound = BoundReward(
            spec,
            known.distribution,
            options,
            alias=text.alias,
            timeout=spec.timeout if text.timeout is None else text.timeout,
            reads=_reads(text, spec),
            weight=1.0 if text.weight is None else text.weight,
        )
        for part in parts(bound):
            part.prepare()
        return bound

    def rewards(self, sources: Iterable[Source], home: str = "") -> list[BoundReward]:
        """Binds several rewards. Raises UsageError if two have one name, and everything that `reward` raises."""
        bound = [self.reward(source, home) for source in sources]
        names = [part.name for reward in bound for part in parts(reward)]
        for reward in bound:
            twice = next((part.name for part in parts(reward) if names.count(part.name) > 1), None)
            if twice is not None:
                raise UsageError(
                    f"two rewards are named '{twice}', and their metrics would mix. Give one another name with 'as': "
                    f"{reward.spec.name}:as={reward.name}_2, or in Python {{'name': ..., 'as': '{reward.name}_2'}}."
                )
        return bound

    def verifier(self, source: Source, home: str = "") -> BoundVerifier:
        """Binds a verifier; it takes `as`, `timeout` and `reads`, and raises what `reward` raises."""
        from grpo.plugins._spec.binding import BoundVerifier

        text = parse(source)
        _refuse(text, "verifier", weight=text.weight, mcp=text.mcp)
        known, options = self._bound("verifier", text, home)
        spec: Any = known.spec
        timeout = spec.timeout if text.timeout is None else text.timeout
        bound = BoundVerifier(
            spec, known.distribution, options, alias=text.alias, timeout=timeout, reads=_reads(text, spec)
        )
        bound.prepare()
        return bound

    def env(self, source: Source) -> BoundEnv:
        """Binds an environment; it takes `as`, `weight` and `mcp`, and raises what `reward` raises."""
        from grpo.plugins._spec.binding import BoundEnv

        text = parse(source)
        _refuse(text, "env", timeout=text.timeout, reads=text.reads)
        known, options = self._bound("env", text, "")
        spec: Any = known.spec
        weight = 1.0 if text.weight is None else text.weight
        bound = BoundEnv(spec, known.distribution, options, alias=text.alias, weight=weight)
        if text.mcp is None:
            return bound
        from grpo.plugins.mcp.attach import with_servers
        from grpo.plugins.mcp.servers import read_servers

        return replace(
            bound, spec=with_servers(spec, read_servers(text.mcp, text.written, lambda spec: self.session(spec).make))
        )

    def sandbox(self, source: Source) -> BoundSandbox:
        """Binds a sandbox, without reserved keys; raises what `reward` raises, NotInstalled for a missing module."""
        from grpo.plugins._spec.binding import BoundSandbox

        return self._prepared(BoundSandbox, "sandbox", source)

    def session(self, source: Source) -> BoundSession:
        """Binds a session, without reserved keys; raises what `reward` raises, NotInstalled for a missing module."""
        from grpo.plugins._spec.binding import BoundSession

        return self._prepared(BoundSession, "session", source)

    def loss(self, source: Source) -> BoundLoss:
        """Binds a loss, which takes none of the reserved keys; raises what `reward` raises."""
        from grpo.plugins._spec.binding import BoundLoss

        return self._prepared(BoundLoss, "loss", source)

    def advantage(self, source: Source) -> BoundAdvantage:
        """Binds an advantage, which takes none of the reserved keys; raises what `reward` raises."""
        from grpo.plugins._spec.binding import BoundAdvantage

        return self._prepared(BoundAdvantage, "advantage", source)

    def sampler(self, source: Source) -> BoundSampler:
        """Binds a sampler, which takes none of the reserved keys; raises what `reward` raises."""
        from grpo.plugins._spec.binding import BoundSampler

        return self._prepared(BoundSampler, "sampler", source)

    def agent(self, source: Source) -> BoundAgent:
        """Binds an agent, without reserved keys; raises what `reward` raises, NotInstalled for what is missing."""
        from grpo.plugins._spec.binding import BoundAgent

        return self._prepared(BoundAgent, "agent", source)

    def default_rewards(self, env: BoundEnv) -> list[BoundReward]:
        """Binds the rewards that an environment names itself, looked up in its own distribution first."""
        return self.rewards(env.spec.rewards, home=env.distribution)

    def default_verifier(self, env: BoundEnv) -> BoundVerifier | None:
        """Binds the verifier that an environment names itself, or returns None when it names none."""
        return None if env.spec.verifier is None else self.verifier(env.spec.verifier, home=env.distribution)

    def lock(self, bound: Bound) -> dict[str, Any]:
        """Returns the record of a bound plugin for the run directory; `grpo.plugins._host.lock` says what it holds."""
        from grpo.plugins._host.lock import lock_of

        own = (known for known in self._registrations if known.distribution == bound.distribution)
        versions = (known.distribution_version for known in own)
        return lock_of(bound, next(versions, ""))

    def observe(self, event: Event) -> None:
        """Sends every plugin an event. A failing observer is recorded once as a problem and stops nothing."""
        for loaded in self._loaded:
            if loaded.manager is None:
                continue
            try:
                loaded.manager.hook.grpo_observe(event=event)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # an observer may also call sys.exit()
                entry = loaded.entry
                line = f"grpo_observe raised {one_line(error)}"
                known = ((p.state, p.distribution, p.entry_point) for p in self._problems)
                if ("observer", entry.distribution, entry.name) not in known:
                    import logging

                    self._problems.append(problem_of(entry, "observer", line, error))
                    log = logging.getLogger("grpo.plugins")
                    log.warning("%s of %s: %s", entry.name, entry.distribution, line)

    def _whole_rubrics(self) -> Iterator[Registration]:
        for known in self._registrations:
            try:
                yield with_components(known, self._component_finder(known.distribution))
            except UsageError as error:
                entry = (known.distribution, known.distribution_version, known.entry_point)
                self._problems.append(Problem("invalid", *entry, str(error)))

    def _component_finder(self, home: str) -> Find:
        return lambda text: self._registered("reward", text, home)

    def _find_with_components(self, kind: Kind, text: SpecText, home: str) -> Registration:
        known = self._registered(kind, text, home)
        if text.member and isinstance(known.spec, EnvSpec) and known.spec.resolve is not None:
            known = replace(known, spec=known.spec.resolve(text.member))
        return with_components(known, self._component_finder(known.distribution))

    def _registered(self, kind: Kind, text: SpecText, home: str) -> Registration:
        if text.path:
            from grpo.plugins._host.source_file import registration_from_file

            return registration_from_file(kind, text)
        given = self._given.get((kind, text.name))
        if text.distribution == GIVEN and given is None:
            raise PluginNotFound(
                f"{kind} '{text.name}' was defined in a script or a notebook and given to grpo.train: it is in no "
                f"package and no file. Give it again from there, as in grpo.train(resume=RUN, "
                f"{ARGUMENT[kind]}={text.name}), or write it to a file."
            )
        if given is not None and GIVEN in (text.distribution, text.distribution or home):
            return given
        if home.endswith(".py") and not text.distribution:
            from grpo.plugins._host.source_file import declared_in_file

            if own := declared_in_file(kind, replace(text, path=home)):
                return own
        home = home or self._preferred.get((kind, text.name), "")
        registration = find_registration(self._registrations, self._problems, kind, text, home)
        note = "" if text.distribution or home else passed_over(self._registrations, registration)
        if note and note not in self._noted:
            import logging

            self._noted.add(note)
            logging.getLogger("grpo.plugins").warning(note)
        return registration

    def _prepared(self, made: type[_Plain], kind: Kind, source: Source) -> _Plain:
        text = parse(source)
        reserved = {"weight": text.weight, "timeout": text.timeout, "reads": text.reads, "mcp": text.mcp}
        _refuse(text, kind, **reserved, **{"as": text.alias or None})
        known, options = self._bound(kind, text, "")
        spec: Any = known.spec
        bound = made(spec, known.distribution, options)
        bound.prepare()
        return bound

    def _bound(self, kind: Kind, text: SpecText, home: str) -> tuple[Registration, dict[str, Any]]:
        known = self._find_with_components(kind, text, home)
        if isinstance(known.spec, EnvSpec) and known.spec.resolve is not None:
            raise OptionError(f"'{text.written}' stands for many environments. Name one: {known.spec.name}:NAME.")
        return known, checked_options(known.spec, known.distribution, text.options, text.unnamed)


def bound_of(plugin: Any, made: type[_Made]) -> _Made:
    """Returns a SPEC, table, spec or bound plugin bound as `made`, such as `BoundReward`. Raises UsageError."""
    if isinstance(plugin, made):
        return plugin
    bind: Any = made
    if isinstance(plugin, str | Mapping):
        bind = getattr(Host.discover(), made.__name__.removeprefix("Bound").lower())
    limits = {"timeout": plugin.timeout} if hasattr(plugin, "timeout") else {}
    bound: _Made = bind(plugin, **limits)
    return bound


def _reads(text: SpecText, spec: RewardSpec | VerifierSpec) -> Reads:
    """Returns what a function reads of a multi-turn rollout; UsageError where it takes the whole of it."""
    if text.reads is not None and spec.whole and not isinstance(spec, RubricSpec):
        raise UsageError(f"'{text.written}': '{spec.name}' takes the whole rollout as it is. Leave 'reads' out.")
    return text.reads or "turn"


def _refuse(text: SpecText, kind: Kind, **reserved: object) -> None:
    given: Sequence[str] = [key for key, value in reserved.items() if value is not None]
    if given:
        raise UsageError(f"'{text.written}': {plural(kind)} take no '{given[0]}'. Leave it out.")


def with_components(known: Registration, find: Find, inside: tuple[str, ...] = ()) -> Registration:
    """Returns the registration of a reward with every component of a rubric found, at any depth.

    `find`: returns the reward of a SPEC, without its components. `inside`: the rubrics, as distribution/name, around
    this one. Raises UsageError, which names the rubric, if a component cannot be found or does not fit.
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
