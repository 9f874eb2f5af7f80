"""Loads one entry point: imports it, checks its hooks and asks them what the plugin offers.

Each has its own pluggy manager, so an entry point that raises, shares a name or misspells a hook spoils only itself.
Nothing that the plugin does, except Ctrl-C, escapes; what it prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import pluggy

from grpo.plugins import hookspecs
from grpo.plugins._host.entry_points import Entry
from grpo.plugins._spec.soundness import spec_fault
from grpo.plugins.contract import contract_fault, import_fault, stated_by
from grpo.plugins.error_lines import one_line, traceback_text
from grpo.plugins.errors import did_you_mean, plural
from grpo.plugins.specs import KINDS, Kind, Spec

State = Literal["broken", "contract", "misspelt", "invalid", "clash", "observer"]
HOOK_OF_KIND: dict[Kind, str] = {kind: f"grpo_{plural(kind)}" for kind in KINDS}
HOOKS = (*HOOK_OF_KIND.values(), "grpo_observe")
GIVEN = "__main__"
"""The distribution of plugins that exist in this process alone; see `_given`."""


@dataclass(frozen=True, slots=True)
class Registration:
    """One usable plugin and where it came from; for a plugin from a file the distribution is the file's path."""

    kind: Kind
    spec: Spec
    distribution: str
    distribution_version: str
    entry_point: str


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with one entry point: a line for users and a traceback for its author."""

    # "broken" (import or a hook raised), "contract" (the package was written for another contract), "misspelt" (a hook
    # that nothing calls), "invalid" (a hook returned something that is no usable spec), "clash" (another distribution
    # offers the name too), "observer" (`grpo_observe` raised)
    state: State
    distribution: str  # the distribution that declares the entry point
    distribution_version: str  # its version
    entry_point: str  # the name in the entry-point group
    line: str  # what happened, in one line
    traceback: str = ""  # the traceback as text, "" when nothing was raised
    plugin: str = ""  # the plugin that it is about, where that is known, as "reward:proximity"; otherwise ""


@dataclass(frozen=True, slots=True)
class Loaded:
    """One entry point after loading."""

    entry: Entry  # the entry point
    # the pluggy manager with this plugin alone, or None when it could not be imported
    manager: pluggy.PluginManager | None
    registrations: tuple[Registration, ...]  # what it offers
    problems: tuple[Problem, ...]  # what is wrong with it


def load_entry(entry: Entry) -> Loaded:
    """Imports the plugin of an entry and collects its specs, if it was written for this contract."""
    if entry.fault:
        return Loaded(entry, None, (), (problem_of(entry, "broken", entry.fault),))
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            plugin = entry.load()
            fault = contract_fault(stated_by(plugin))
            if fault:
                return Loaded(entry, None, (), (problem_of(entry, "contract", fault),))
            manager.register(plugin, name=entry.name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may also call sys.exit() or raise an exception of its own kind
        hint, other_contract = _hint(entry, error)
        line = f"{one_line(error)}. {hint[:1].upper()}{hint[1:]}" if hint else one_line(error)
        return Loaded(entry, None, (), (problem_of(entry, "contract" if other_contract else "broken", line, error),))
    problems = list(_hook_problems(entry, manager, plugin))
    registrations: list[Registration] = []
    for kind, hook in HOOK_OF_KIND.items():
        for spec in _specs(entry, manager, kind, hook):
            if isinstance(spec, Problem):
                problems.append(spec)
            elif any(known.kind == kind and known.spec.name == spec.spec.name for known in registrations):
                problems.append(
                    problem_of(
                        entry, "invalid", f"{hook} returned two {plural(kind)} named '{spec.spec.name}'; rename one"
                    )
                )
            else:
                registrations.append(spec)
    return Loaded(entry, manager, tuple(registrations), tuple(problems))


def _hint(entry: Entry, error: BaseException) -> tuple[str, bool]:
    try:
        if type(error) is not ModuleNotFoundError or not error.name or error.name.startswith("grpo."):
            return import_fault(error)
        missing, own = error.name.partition(".")[0], entry.module.partition(".")[0]
    except BaseException:
        return "", False
    if missing == own:
        return "it names a module that the package lacks: install it again, or another release", False
    return f"install '{missing}', or the package that has it; its author lists that under dependencies", False


def _hook_problems(entry: Entry, manager: pluggy.PluginManager, plugin: object) -> Iterator[Problem]:
    callers = manager.get_hookcallers(plugin) or []
    for caller in callers:
        optional = all(implementation.optionalhook for implementation in caller.get_hookimpls())
        if not caller.has_spec() and not optional:
            yield problem_of(
                entry,
                "misspelt",
                f"hook '{caller.name}' does not exist, so nothing calls it.{did_you_mean(caller.name, HOOKS)} "
                f"Hooks: {', '.join(HOOKS)}.",
            )
    implemented = {caller.name for caller in callers}
    absent = [name for name in HOOKS if name not in implemented]
    unmarked = [name for name in absent if inspect.isroutine(inspect.getattr_static(plugin, name, None))]
    for name in unmarked:
        yield problem_of(entry, "misspelt", f"'{name}' lacks the decorator @hookimpl, so nothing calls it.")
    if not callers and not unmarked:
        yield problem_of(
            entry, "misspelt", f"implements no hook; decorate one of these with @hookimpl: {', '.join(HOOKS)}."
        )


def _specs(entry: Entry, manager: pluggy.PluginManager, kind: Kind, hook: str) -> Iterator[Registration | Problem]:
    caller: pluggy.HookCaller = getattr(manager.hook, hook)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            answers: list[Any] = caller()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # see load_entry
        yield problem_of(entry, "broken", f"{hook} raised {one_line(error)}", error)
        return
    if len(answers) < len(caller.get_hookimpls()):
        yield problem_of(entry, "invalid", f"{hook} returned None; return a list, empty if there is nothing to offer")
    for answer in answers:
        if not issubclass(type(answer), (list, tuple)):
            kind_of_answer = type(answer).__name__
            yield problem_of(entry, "invalid", f"{hook} returned a value of type {kind_of_answer}; return a list")
            continue
        held = list.__iter__(answer) if issubclass(type(answer), list) else tuple.__iter__(answer)
        yield from (_registered(entry, kind, hook, spec) for spec in held)  # whatever a class of the plugin's own says


def _registered(entry: Entry, kind: Kind, hook: str, spec: Any) -> Registration | Problem:
    try:
        fault = spec_fault(kind, spec)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # what a hook returns may be of any class, and its attributes may raise
        return problem_of(entry, "broken", f"{hook} returned what cannot be read: {one_line(error)}", error)
    if fault:
        return problem_of(entry, "invalid", f"{hook}: {fault}")
    if not spec.version:
        line = (
            f"{kind} '{spec.name}' has no version, and in a package it needs one, so that users can tell that its "
            "scores changed; give it version=1"
        )
        return replace(problem_of(entry, "invalid", line), plugin=f"{kind}:{spec.name}")
    return Registration(kind, spec, entry.distribution, entry.distribution_version, entry.name)


def problem_of(entry: Entry, state: State, line: str, error: BaseException | None = None) -> Problem:
    """Returns the problem of an entry point, with the traceback of what was raised."""
    text = "" if error is None else traceback_text(error)
    return Problem(state, entry.distribution, entry.distribution_version, entry.name, line, text)
