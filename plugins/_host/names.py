"""Looks a name up among the registrations. A built-in short name means the built-in plugin, whatever is installed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from grpo.plugins._host.discovery import BUILT_IN, normalized
from grpo.plugins._host.loading import Problem, Registration
from grpo.plugins._spec.spec_text import SpecText
from grpo.plugins.errors import AmbiguousName, PluginNotFound, did_you_mean, with_article
from grpo.plugins.specs import Kind

_FAILED = ("broken", "contract", "invalid", "misspelt")


def find_registration(
    registrations: Sequence[Registration], problems: Sequence[Problem], kind: Kind, text: SpecText, home: str = ""
) -> Registration:
    """Returns the registration that the SPEC names; `home` is the distribution that wins for an ambiguous short name.

    After it, the built-in plugins win. Raises PluginNotFound for an unknown name, distribution or version;
    AmbiguousName if several distributions offer the short name, and it is not built in.
    """
    offers = [known for known in registrations if known.kind == kind and known.spec.name == text.name]
    wanted = text.distribution or (home if len(offers) > 1 else "")
    matches = [known for known in offers if not wanted or normalized(known.distribution) == normalized(wanted)]
    if not matches and not text.distribution:
        matches = offers
    if not matches:
        raise PluginNotFound(_not_found(registrations, problems, kind, text))
    matches = [known for known in matches if normalized(known.distribution) == BUILT_IN] or matches
    if len(matches) > 1:
        choices = " or ".join(f"{known.distribution}/{known.spec.name}" for known in matches)
        raise AmbiguousName(
            f"{kind} '{text.name}' is offered by {_listed(known.distribution for known in matches)}. Write {choices}."
        )
    [registration] = matches
    if text.version is not None and registration.spec.version != text.version:
        raise PluginNotFound(
            f"no {kind} '{text.name}' of version {text.version}: {registration.distribution} "
            f"{registration.distribution_version} has version {registration.spec.version}. Its scores may differ; "
            f"write {text.name}@{registration.spec.version} to accept it, or install a release with the other version."
        )
    return registration


def clash_problems(registrations: Sequence[Registration]) -> list[Problem]:
    """Returns one problem for every registration whose short name another distribution offers too."""
    problems = []
    for known in registrations:
        others = _others(registrations, known)
        if others:
            name = known.spec.name
            what = f"write {known.distribution}/{name}"
            if normalized(known.distribution) == BUILT_IN:
                what = f"'{name}' alone means this one, as {known.distribution}/{name} does"
            elif BUILT_IN in map(normalized, others):
                what += f", for '{name}' alone means the built-in one"
            line = f"{known.kind} '{name}' is offered by {_listed(others)} too; {what}"
            entry = (known.distribution, known.distribution_version, known.entry_point)
            problems.append(Problem("clash", *entry, line, plugin=f"{known.kind}:{name}"))
    return problems


def passed_over(registrations: Sequence[Registration], chosen: Registration) -> str:
    """Returns a note on plugins of other distributions that a built-in one hides, or ""."""
    others = _others(registrations, chosen)
    if normalized(chosen.distribution) != BUILT_IN or not others:
        return ""
    names = " or ".join(f"{other}/{chosen.spec.name}" for other in others)
    have = "have" if len(others) > 1 else "has"
    return (
        f"{chosen.kind} '{chosen.spec.name}' is the built-in one. {_listed(others)} {have} one of that name too: write "
        f"{names} to use that."
    )


def _others(registrations: Sequence[Registration], known: Registration) -> list[str]:
    key = (known.kind, known.spec.name)
    return [
        other.distribution for other in registrations if other is not known and (other.kind, other.spec.name) == key
    ]


def clash_of(problems: Sequence[Problem], known: Registration) -> Problem | None:
    """Returns the clash of a registration, or None."""
    wanted = ("clash", known.distribution, f"{known.kind}:{known.spec.name}")
    return next((p for p in problems if (p.state, p.distribution, p.plugin) == wanted), None)


def _not_found(registrations: Sequence[Registration], problems: Sequence[Problem], kind: Kind, text: SpecText) -> str:
    names = [known.spec.name for known in registrations if known.kind == kind]
    distributions = {known.distribution for known in registrations} | {p.distribution for p in problems}
    message = f"no {kind} '{text.name}'" + (f" in '{text.distribution}'." if text.distribution else ".")
    here = [other for other in registrations if other.spec.name == text.name]
    unusable = _unusable(problems, kind, text)
    if text.distribution and normalized(text.distribution) not in {normalized(known) for known in distributions}:
        message += f" No distribution of that name offers plugins.{did_you_mean(text.distribution, distributions)}"
    elif unusable:
        how = "has one that cannot be used" if unusable.plugin else "did not load"
        message += f" {unusable.distribution} {how}: {unusable.line.rstrip('.')}."
    elif any(other.kind == kind for other in here):
        message += f" It is in {_listed(other.distribution for other in here if other.kind == kind)}."
    elif here:
        message += f" There is {_listed((with_article(other.kind) for other in here), quoted=False)} of that name."
        within = [name for name in names if name.startswith(f"{text.name}.")]
        message += f" Did you mean '{within[0]}'?" if within else ""
    else:
        several = "," in text.name
        message += (
            f" One SPEC names one {kind}: repeat the option for each, or give a list."
            if several
            else nearest(f"{text.name}:{text.unnamed.text}" if text.unnamed else text.name, names)
        )
    return f"{message} {where_to_look([problem for problem in problems if problem != unusable])}"


def nearest(name: str, names: Iterable[str]) -> str:
    """Returns what an unknown name may mean: a similar name, or a function in a file."""
    close = did_you_mean(name, names)
    for mark in ":" if close else ":.":
        module, _, function = name.rpartition(mark) if mark in name else (name, "", "")
        file = Path(f"{module.replace('.', '/')}.py")
        if file.is_file():
            return f" Is it the one in {file}? Write ./{file}:{function or file.stem}."
    return close or f" One in a file is ./FILE.py:{name if name.isidentifier() else 'NAME'}."


def where_to_look(problems: Iterable[Problem]) -> str:
    """Returns the command that lists plugins, with the packages whose plugins are missing from the list."""
    broken = sorted({problem.distribution for problem in problems if problem.state in _FAILED})
    if broken:
        return f"Plugins of {_listed(broken)} did not load; see why with: grpo plugins"
    return "List them with: grpo plugins"


def _unusable(problems: Sequence[Problem], kind: Kind, text: SpecText) -> Problem | None:
    for problem in problems:
        ours = not text.distribution or normalized(problem.distribution) == normalized(text.distribution)
        same_name = problem.entry_point.replace("-", "_") == text.name.replace("-", "_")
        whole = problem.state in _FAILED and not problem.plugin and (same_name or text.distribution)
        if ours and (whole or (problem.state == "invalid" and problem.plugin == f"{kind}:{text.name}")):
            return problem
    return None


def _listed(words: Iterable[str], quoted: bool = True) -> str:
    unique = list(dict.fromkeys(words))
    return " and ".join(f"'{word}'" if quoted else word for word in unique)
