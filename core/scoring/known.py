"""Reads canaries (completions with known scores) from a file and from the cases of the run's plugins.

A line of the file is {"completion": "#### 72", "answer": "72", "expect": {"proximity": 1.0, "gsm8k": true}}: scores,
verdicts, or null for an abstention, and columns. Lines with the same "group" are one group for a reward of groups.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo.core.scoring.rows import read_rows
from grpo.plugins._spec.binding import BoundReward, BoundVerifier
from grpo.plugins._spec.soundness import is_finite
from grpo.plugins.errors import DatasetError, UsageError, did_you_mean
from grpo.plugins.rubric import parts
from grpo.plugins.types import Case, Completion

Bound = BoundReward | BoundVerifier


@dataclass(frozen=True, slots=True)
class Canary:
    """One completion that one plugin is watched with."""

    kind: str  # "reward" or "verifier"
    name: str  # the plugin, as the run names it; for a component of a rubric, `rubric.component`
    owner: str  # the reward that is called for it: the plugin itself, or the rubric that it is in
    completion: Completion  # the completion with its columns
    expect: float | None  # the score that it should get (for a verifier 1.0 or 0.0), or None where it should abstain
    where: str  # where it was written, for messages


def canaries_of(
    file: Path | None, cases: bool, rewards: Sequence[BoundReward], verifiers: Sequence[BoundVerifier]
) -> tuple[Canary, ...]:
    """Returns the canaries of a file and, with `cases`, of plugins whose options are those of the run."""
    plugins = _plugins(rewards, verifiers)
    canaries = list(_from_file(file, plugins)) if file is not None else []
    if cases:
        canaries += [canary for plugin, owner in plugins for canary in _from_cases(plugin, owner)]
    if not canaries and (cases or file is not None):
        what = f"{file} has no line" if file is not None else "no reward or verifier of this run declares a case"
        raise UsageError(f"there are no canaries: {what}. Leave canaries out, or write some.")
    return tuple(canaries)


def _plugins(rewards: Sequence[BoundReward], verifiers: Sequence[BoundVerifier]) -> list[tuple[Bound, str]]:
    bound: list[tuple[Bound, str]] = [(part, reward.name) for reward in rewards for part in parts(reward)]
    return [*bound, *((verifier, verifier.name) for verifier in verifiers)]


def _from_cases(plugin: Bound, owner: str) -> Iterator[Canary]:
    defaults = {option.name: option.default for option in plugin.spec.options}
    for number, case in enumerate(plugin.spec.cases):
        if {**defaults, **case.options} == {**defaults, **plugin.options}:
            where = f"case {number} of {plugin.spec.kind} '{plugin.name}'"
            for text, expect in zip(case.texts, case.expected, strict=True):
                completion = _completion(text, case, number if case.several else None)
                yield Canary(plugin.spec.kind, plugin.name, owner, completion, _number(expect), where)


def _completion(text: str, case: Case, group: int | None) -> Completion:
    return Completion(text, ({"role": "assistant", "content": text},), row=dict(case.row), group=group)


def _from_file(file: Path, plugins: Sequence[tuple[Bound, str]]) -> Iterator[Canary]:
    try:
        lines = file.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise UsageError(f"cannot read the canaries {file}: {error.strerror}.") from None
    groups = _Groups()
    for row in read_rows(lines, str(file)):
        where = f"{file}, line {row.line}"
        expect = row.values.get("expect")
        if not isinstance(expect, dict) or not expect:
            raise DatasetError(
                f'{where}: it has no table "expect". Write what each reward should score: "expect": {{"NAME": 1.0}}.'
            )
        columns: Mapping[str, Any] = {name: value for name, value in row.completion.row.items() if name != "expect"}
        completion = groups.member(where, dataclasses.replace(row.completion, row=columns), expect, plugins)
        for name, value in expect.items():
            yield _checked(where, completion, name, value, plugins)


class _Groups:
    """The groups of a file, by negative numbers, whose lines all expect something of the same group rewards."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._expecting: dict[str, set[str]] = {}

    def member(
        self, where: str, completion: Completion, expect: Mapping[str, Any], plugins: Sequence[tuple[Bound, str]]
    ) -> Completion:
        if "group" not in completion.row:
            return completion
        key = json.dumps(completion.row["group"], sort_keys=True)
        grouped = {plugin.name for plugin, _ in plugins if plugin.grouped and plugin.name in expect}
        first = self._expecting.setdefault(key, grouped)
        if grouped != first:
            [name, *_] = sorted(grouped ^ first)
            raise DatasetError(
                f"{where}: '{name}' scores groups, and of group {key} only some lines say what it should score. Say it "
                "of each, with null where it should abstain."
            )
        return dataclasses.replace(completion, group=self._numbers.setdefault(key, -1 - len(self._numbers)))


def _checked(where: str, completion: Completion, name: str, value: Any, plugins: Sequence[tuple[Bound, str]]) -> Canary:
    named = [(plugin, owner) for plugin, owner in plugins if plugin.name == name]
    if not named:
        known = [plugin.name for plugin, _ in plugins]
        raise DatasetError(
            f"{where}: this run scores with no '{name}'.{did_you_mean(name, known)} It has: {', '.join(known)}."
        )
    judged = isinstance(value, bool)
    fitting = [
        reward_name for reward_name in named if value is None or (reward_name[0].spec.kind == "verifier") == judged
    ]
    if not fitting or not (value is None or judged or is_finite(value)):
        wanted = "true, false or null" if named[0][0].spec.kind == "verifier" else "a finite number or null"
        raise DatasetError(
            f"{where}: {named[0][0].spec.kind} '{name}' cannot be expected to say {value!r}, only {wanted}."
        )
    plugin, owner = fitting[0]
    missing = [c.name for c in plugin.spec.columns if c.required and c.found_in(completion.row) is None]
    if missing:
        raise DatasetError(f"{where}: {plugin.spec.kind} '{name}' needs the column '{missing[0]}'. Add it to the line.")
    return Canary(plugin.spec.kind, name, owner, completion, _number(value), where)


def _number(value: float | bool | None) -> float | None:
    return None if value is None else float(value)
