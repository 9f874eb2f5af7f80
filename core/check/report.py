"""Holds the findings of a plugin check, and prints them for people and programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

from grpo.core.text.printable import counted, one_line
from grpo.plugins._spec.binding import Bound, BoundSession
from grpo.plugins.errors import PluginError

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
QUIRKS = frozenset((
    "gold", "CRLF", "final newline", "trailing space", "leading space", "multi-line reasoning", "thousands comma",
    "trailing zero", "currency sign", "near", "wrong", "near >= wrong", "wrong >= silence", "silence", "only tags",
    "every number", "alternatives", "look-alikes", "question repeated", "override", "1 MB of text", "unusable gold",
))  # fmt: skip
"""Relations of what a text is worth, which a published text may break; all others are about how a plugin works."""

_WIDTH = 100


class Complaint(NamedTuple):
    """What does not hold of a relation."""

    message: str  # what was expected and what came
    severity: Severity = "error"
    example: str | None = None  # what it was tried on


Complaints = Iterable[str | Complaint]
"""What does not hold of one relation; a text alone is an error."""
Tried = Iterator[tuple[str, Complaints]]
"""The relations that are tried, by name."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One relation that does not hold."""

    severity: Severity  # "error" (would train the wrong thing), "warning" (may be meant, look at it) or "note"
    relation: str  # the relation's name, for example "CRLF"; docs/authors.md lists them
    message: str  # what was expected and what came
    example: str = ""  # the text, or what else it was seen on; "" when there is none


@dataclass(frozen=True, slots=True)
class Report:
    """What checking one plugin found.

    Attributes:
        plugin: its kind and name, with the options that were checked.
        findings: one for each relation that does not hold, errors first.
        relations: the names of all relations that were tried.
        not_tried: what was not tried and why, one sentence each; what the cases leave out shows nowhere else.
        facts: what was seen beside the relations, one line each.
    """

    plugin: str
    findings: tuple[Finding, ...]
    relations: tuple[str, ...]
    not_tried: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True without errors; there may be warnings."""
        return not self.of("error")

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        """Returns the findings of one severity."""
        return tuple(finding for finding in self.findings if finding.severity == severity)

    def require(self) -> None:
        """Raises `PluginError` with the whole report when there is an error."""
        if not self.ok:
            raise PluginError(str(self))

    def lines(self) -> Iterator[tuple[Severity | None, str]]:
        """Yields the lines of the report, each with the severity that colours it."""
        counts = ", ".join(counted(len(self.of(severity)), severity) for severity in SEVERITIES if self.of(severity))
        held = "these hold, others were not tried" if self.not_tried else "all hold"
        yield None, f"{self.plugin}: {counted(len(self.relations), 'relation')} tried, {counts or held}"
        for finding in self.findings:
            yield finding.severity, f"  {finding.severity}: {finding.relation}: {one_line(finding.message, 400)}"
            if finding.example:
                yield None, f"    on {one_line(finding.example, _WIDTH)}"
        for sentence in self.not_tried:
            yield None, f"  not tried: {sentence}"
        yield from ((None, f"  {fact}") for fact in self.facts)

    def as_json(self) -> dict[str, Any]:
        """Returns the report as values that JSON can hold."""
        return {
            "plugin": self.plugin,
            "ok": self.ok,
            "relations": list(self.relations),
            "not_tried": list(self.not_tried),
            "facts": list(self.facts),
            "findings": [asdict(finding) for finding in self.findings],
        }

    def __str__(self) -> str:
        return "\n".join(line for _, line in self.lines())


class Findings:
    """Collects one finding for a relation and severity, with the first example and a count."""

    def __init__(self, *, as_published: bool = False) -> None:
        self._as_published = as_published
        self._tried: dict[str, None] = {}
        self._found: dict[tuple[Severity, str], list[Finding]] = {}
        self._not_tried: dict[str, None] = {}
        self._facts: list[str] = []

    def fact(self, line: str) -> None:
        """Notes an observation that breaks no relation."""
        self._facts.append(line)

    def not_tried(self, what: str) -> None:
        """Notes what is not tried, and why."""
        self._not_tried[what] = None

    def tried(self, relation: str, complaints: Complaints = ()) -> None:
        """Notes that a relation is tried, and what does not hold of it."""
        self._tried[relation] = None
        for complaint in complaints:
            message, severity, example = Complaint(complaint) if isinstance(complaint, str) else complaint
            self.add(severity, relation, message, example)

    def add(self, severity: Severity, relation: str, message: str, example: str | None = None) -> None:
        """Notes that a relation does not hold."""
        self.tried(relation)
        if self._as_published and relation in QUIRKS and severity != "note":
            severity, message = "note", f"as published, {message}"
        shown = "" if example is None else repr(example[:300])
        self._found.setdefault((severity, relation), []).append(Finding(severity, relation, message, shown))

    def report(self, plugin: str) -> Report:
        findings = []
        for first, *more in sorted(self._found.values(), key=lambda found: SEVERITIES.index(found[0].severity)):
            findings.append(replace(first, message=f"{first.message} (and {len(more)} more)") if more else first)
        return Report(plugin, tuple(findings), tuple(self._tried), tuple(self._not_tried), tuple(self._facts))


def report_on(bound: Bound, relations: Tried) -> Report:
    """Tries relations of a plugin; what it raises is a finding too, and ends them."""
    findings = Findings()
    findings.tried("raises")
    try:
        for relation, complaints in relations:
            findings.tried(relation, complaints)
    except Exception as error:
        findings.add("error", "raises", f"{type(error).__name__}: {error}")
    return findings.report(title_of(bound))


def title_of(bound: Bound | BoundSession) -> str:
    """Returns the plugin's kind, name and options, as a SPEC would set them."""
    values = {name: v if isinstance(v, str) else json.dumps(v, default=str) for name, v in bound.options.items()}
    options = ",".join(f"{name}={value}" for name, value in values.items())
    return f"{bound.spec.kind} {bound.spec.name}{':' if options else ''}{options}"
