"""Checks a reward or verifier by the relations that follow from its own cases, in every executor and a worker."""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from grpo.core.check.answers import Example
from grpo.core.check.env import check_env
from grpo.core.check.gold.validate import answered
from grpo.core.check.golds import find_golds, wanted
from grpo.core.check.groups import check_groups
from grpo.core.check.relations import Relations
from grpo.core.check.report import Finding, Findings, Report, Severity, title_of
from grpo.core.check.scores import Bound, Check, placed, score_examples, with_options
from grpo.core.check.trial import OWN_ROW, faults_of, own_completions
from grpo.core.env.episodes import START_SECONDS, episodes_of
from grpo.core.env.mixture import missing_columns, refuse_missing_columns
from grpo.core.env.processes import starting_place
from grpo.core.scoring.scorer import Scorer
from grpo.plugins._spec.binding import BoundReward, BoundVerifier
from grpo.plugins._spec.signature import is_async, resolved_hints
from grpo.plugins.errors import did_you_mean
from grpo.plugins.from_trl import MessagesFunction, TrlFunction
from grpo.plugins.host import Host, bound_of
from grpo.plugins.rubric import RubricSpec
from grpo.plugins.specs import EnvSpec, RewardSpec, VerifierSpec
from grpo.plugins.types import Case, Isolation

__all__ = ["Finding", "Report", "check_env", "check_reward", "check_verifier"]

Target = str | RewardSpec | BoundReward
VerifierTarget = str | VerifierSpec | BoundVerifier
_FEW = 2
_NOT_SENT = ("cannot be sent to a worker process", "a worker process cannot load it")


DEFAULT_ENV = "gsm8k"
_ROWS = 2


def check_reward(
    reward: Target, cases: Sequence[Case] | None = None, *, answer: str | None = None, env: str | None = None
) -> Report:
    """Checks a reward: a SPEC ("proximity:table=qwen3_4b", "./mine.py:score"), a `RewardSpec`, or a bound one.

    Args:
        cases: examples to derive the relations from; default: the reward's own.
        answer: the column with the gold answer; default: found out from the cases.
        env: the SPEC of an environment, on whose rows it is called too; default: gsm8k for a reward without cases.

    Returns what does not hold; whatever the reward does, nothing is raised on its account. Raises UsageError for a SPEC
    that names no reward or environment, or options that it does not take.
    """
    return _checked(bound_of(reward, BoundReward), cases, answer, env)


def check_verifier(
    verifier: VerifierTarget, cases: Sequence[Case] | None = None, *, answer: str | None = None, env: str | None = None
) -> Report:
    """Checks a verifier: it accepts gold answers, rejects wrong ones and silence, and says why when it is undecided.

    The arguments and errors are those of `check_reward`.
    """
    return _checked(bound_of(verifier, BoundVerifier), cases, answer, env)


def _checked(bound: Bound, cases: Sequence[Case] | None, answer: str | None, env: str | None) -> Report:
    findings = Findings(as_published=_as_published(bound))
    _note_declarations(bound, findings)
    declared = bound.spec.cases if cases is None else tuple(cases)
    defaults = {option.name: option.default for option in bound.spec.options} if cases is None else bound.options
    chosen = {**defaults, **bound.options}
    matching = [case for case in declared if {**defaults, **case.options} == chosen]
    to_hold = declared if cases is not None or not bound.options else matching
    groups = _groups(bound, to_hold)
    with ExitStack() as executors:
        scorer = executors.enter_context(_scorer(bound, groups, "process"))
        isolation = _safe_isolation(bound, scorer, matching or declared, findings)
        if isolation != "process":
            scorer = executors.enter_context(_scorer(bound, groups, isolation))
        check = Check(bound, scorer, isolation, findings)
        _check_cases(check, groups)
        if bound.grouped:
            check_groups(check, matching or declared)
        golds, others = find_golds(check, declared, matching, answer)
        if golds:
            Relations(check).try_all(golds, others, answer)
        if env is not None or not declared:
            check_calls(check, env)
    return findings.report(title_of(bound))


def _as_published(bound: Bound) -> bool:
    declared = getattr(bound.spec, "as_published", False)
    if isinstance(declared, bool):
        return declared
    defaults = {option.name: option.default for option in bound.spec.options}
    return any(bound.options.get(name, defaults[name]) != defaults[name] for name in declared)


def _safe_isolation(bound: Bound, away: Scorer, cases: Sequence[Case], findings: Findings) -> Isolation:
    """Returns "process" where the plugin can be sent to one, else where it declares to run."""
    if bound.spec.isolation == "process" or is_async(bound.spec.function):
        return bound.spec.isolation
    examples = [example for number, case in enumerate(cases[:_FEW]) for example in _examples(case, number)]
    results = score_examples(away, examples or [Example("", OWN_ROW)])
    if not all(any(words in (result.reason or "") for words in _NOT_SENT) for result in results):
        return "process"
    findings.add("warning", "worker process", f"it works in this process only, where no hang is ended: {results[0]}")
    return bound.spec.isolation


def _groups(bound: Bound, cases: Sequence[Case]) -> dict[str, tuple[Bound, list[Case]]]:
    groups: dict[str, tuple[Bound, list[Case]]] = {}
    for case in cases:
        other = with_options(bound, case.options)
        name = bound.name if other is bound else title_of(other).partition(" ")[2]
        groups.setdefault(name, (other, []))[1].append(case)
    return groups


def _scorer(bound: Bound, groups: Mapping[str, tuple[Bound, list[Case]]], isolation: Isolation) -> Scorer:
    """Returns a scorer of the plugin as it is bound, and after it of the plugin with every other group's options."""
    named = {name: other for name, (other, _) in groups.items() if other is not bound}
    others = [replace(placed(other, isolation), alias=name) for name, other in named.items()]
    return Scorer([placed(bound, isolation), *others], workers=1, retries=0)


def _check_cases(check: Check, groups: Mapping[str, tuple[Bound, list[Case]]]) -> None:
    bound, findings = check.bound, check.findings
    if not groups:
        severity: Severity = "note" if bound.options else "warning"
        what = "it declares no cases for these options" if bound.options else f"it declares no cases{_add_cases(bound)}"
        findings.add(severity, "cases", what)
        return
    findings.tried("cases")
    for name, (_, group) in groups.items():
        examples = [example for number, case in enumerate(group) for example in _examples(case, number)]
        expected = [expect for case in group for expect in case.expected]
        for example, expect, got in zip(examples, expected, score_examples(check.scorer, examples, name), strict=True):
            if not got.same(wanted(expect)):
                due = "it to abstain" if expect is None else f"{expect}"
                findings.add("error", "cases", f"expected {due}, but it {got}", example.text)


def _note_declarations(bound: Bound, findings: Findings) -> None:
    """Notes what a decorator would add to a plugin without a version."""
    spec = bound.spec
    if spec.version or isinstance(spec, RubricSpec):
        return
    ranged = isinstance(spec, RewardSpec)
    open_range = isinstance(spec, RewardSpec) and spec.range == (-math.inf, math.inf)
    lacks = ["a version, so that later runs can tell that its scores changed"]
    lacks += ["a range, so that a score outside it is a failure"] if open_range else []
    lacks += ["cases, so that this check has something to try"] if not spec.cases else []
    arguments = f"version=1{', range=(LOWEST, HIGHEST)' if ranged else ''}, cases=[...]"
    trl = isinstance(spec.function, TrlFunction)
    how = f"from_trl({spec.name}, {arguments})" if trl else f"@{spec.kind}({arguments})"
    how += ", and `completion: Completion` for its messages," if isinstance(spec.function, MessagesFunction) else ""
    findings.add("note", "declaration", f"{how} would add {'; '.join(lacks)}")


def _add_cases(bound: Bound) -> str:
    if bound.grouped:
        return '. Add some, as in cases=[Case(["#### 4", "#### 5"], row={"answer": "4"}, expect=[1.0, 0.0])]'
    right = "True" if isinstance(bound, BoundVerifier) else "1.0"
    return f'. Add some, as in cases=[Case("#### 4", row={{"answer": "4"}}, expect={right})]'


def _examples(case: Case, number: int) -> list[Example]:
    return [Example(text, case.row, number if case.several else None) for text in case.texts]


def check_calls(check: Check, env: str | None) -> None:
    """Calls the plugin on rows of `env`, of its own or of the default one, and notes what fails or never differs."""
    bound, findings = check.bound, check.findings
    host = Host.discover()
    own = _own_env(bound, host)
    source = host.env(env or own or DEFAULT_ENV).settled()
    place = starting_place(source, 0, START_SECONDS)
    episodes = episodes_of(source, "train", limit=_ROWS, unbounded=_ROWS, describe_tools=False, opened=place)
    if env is not None:
        refuse_missing_columns(episodes[0], [bound])
    lacking = missing_columns(bound, episodes[0].row)
    completions = [] if lacking else answered(source, episodes, START_SECONDS)
    made_up = not (env or own or missing_columns(bound, OWN_ROW)) and _reads_texts(bound)
    completions += own_completions() if made_up else []
    absent = f"the rows of env '{source.name}' lack the column{'s' if len(lacking) > 1 else ''} {', '.join(lacking)}"
    other = "Name an environment whose rows have it, as in --env rows:dataset=my.jsonl"
    if not completions:
        known = [*episodes[0].row, *OWN_ROW]
        meant = did_you_mean(lacking[0], known) if lacking and lacking[0] not in known else ""
        findings.add("error" if meant else "warning", "calls", f"it was not called: {absent}.{meant} {other}")
        return
    if lacking:
        findings.add("warning", "columns", f"{absent}, so it was called on a made-up row alone. {other}")
    findings.tried("calls")
    for fault in faults_of(placed(bound, check.isolation), check.scorer, completions):
        findings.add(fault.severity, "calls", fault.message, fault.example)


def _reads_texts(bound: Bound) -> bool:
    hints = resolved_hints(bound.spec.function) if hasattr(bound.spec, "function") else {}
    kinds = [typing.get_origin(hints[name]) or hints[name] for name in OWN_ROW if name in hints]
    return all(not isinstance(kind, type) or issubclass(str, kind) for kind in kinds)


def _own_env(bound: Bound, host: Host) -> str | None:
    for known in host.registrations("env"):
        spec: Any = known.spec
        own = isinstance(spec, EnvSpec) and spec.resolve is None and known.distribution == bound.distribution
        if own and bound.spec.name in (*spec.rewards, spec.verifier):
            return f"{known.distribution}/{spec.name}"
    return None
