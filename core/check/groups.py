"""Checks a reward that scores groups: no order of members or groups may change a score."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence

from grpo.core.check.answers import Example
from grpo.core.check.executors import check_executors
from grpo.core.check.report import Findings
from grpo.core.check.scores import Bound, ExampleResult, note_failure, score_examples, units_of
from grpo.core.scoring.scorer import Scorer
from grpo.plugins.types import Case, Isolation

_MOST_MEMBERS = 8
_MOST_GROUPS = 8
_SHUFFLE = 20_252

Group = Sequence[Example]


def check_groups(bound: Bound, scorer: Scorer, cases: Iterable[Case], findings: Findings, isolation: Isolation) -> None:
    groups = _groups(cases)
    if not groups:
        return
    together = [member for group in groups for member in group]
    scores = score_examples(scorer, together)
    for example, result in zip(together, scores, strict=True):
        note_failure(findings, result, example)
    if any(result.kind == "failure" for result in scores):
        return
    _member_alone(scorer, together, findings)
    expected = [[scores[index] for index in unit] for unit in units_of(together)]
    one_by_one = [score_examples(scorer, group) for group in groups]
    _compare("other groups", "without the other groups of the batch it", groups, one_by_one, expected, findings)
    backwards = _scored(scorer, groups[::-1])[::-1]
    _compare("group order", "with the groups in another order it", groups, backwards, expected, findings)
    rng = random.Random(_SHUFFLE)
    for order in ([*range(len(group))][::-1] for group in groups), (rng.sample(range(len(g)), len(g)) for g in groups):
        orders = list(order)
        moved = _scored(scorer, [[group[at] for at in o] for group, o in zip(groups, orders, strict=True)])
        back = [[results[o.index(at)] for at in range(len(o))] for results, o in zip(moved, orders, strict=True)]
        _compare("permuted members", "in another order of the members it", groups, back, expected, findings)
    _equal_members(scorer, groups, expected, findings)
    check_executors(bound, together, scores, findings, isolation)


def _groups(cases: Iterable[Case]) -> list[Group]:
    """Returns the groups to try, numbered: those of the cases, and of each row all texts, with an empty one."""
    groups: list[tuple[list[str], Case]] = []
    by_row: dict[str, tuple[list[str], Case]] = {}
    for case in cases:
        texts, _ = by_row.setdefault(repr(sorted(case.row.items())), ([], case))
        texts += [text for text in case.texts if text not in texts][: _MOST_MEMBERS - 1 - len(texts)]
        if case.several:
            groups.append((list(case.texts), case))
    groups += [([*(text for text in texts if text), ""], case) for texts, case in by_row.values()]
    return [
        [Example(text, case.row, number) for text in texts]
        for number, (texts, case) in enumerate(groups[:_MOST_GROUPS])
    ]


def _scored(scorer: Scorer, groups: Sequence[Group]) -> list[list[ExampleResult]]:
    scores = iter(score_examples(scorer, [member for group in groups for member in group]))
    return [[next(scores) for _ in group] for group in groups]


def _compare(
    relation: str,
    where: str,
    groups: Sequence[Group],
    got: Sequence[Sequence[ExampleResult]],
    expected: Sequence[Sequence[ExampleResult]],
    findings: Findings,
) -> None:
    findings.tried(relation)
    for group, there, here in zip(groups, got, expected, strict=True):
        for example, result, reference in zip(group, there, here, strict=True):
            if not result.same(reference):
                findings.add("error", relation, f"a member {reference}, and {where} {result}", example.text)


def _member_alone(scorer: Scorer, members: Sequence[Example], findings: Findings) -> None:
    findings.tried("member alone")
    alone = [Example(member.text, member.row) for member in members]
    for example, result in zip(alone, score_examples(scorer, alone), strict=True):
        if result.kind == "failure":
            findings.add("error", "member alone", f"a group may have one member, and it {result}", example.text)


def _equal_members(
    scorer: Scorer, groups: Sequence[Group], expected: Sequence[Sequence[ExampleResult]], findings: Findings
) -> None:
    findings.tried("equal members")
    best = [
        max(range(len(group)), key=lambda at: -math.inf if (value := results[at].value) is None else value)
        for group, results in zip(groups, expected, strict=True)
    ]
    doubled = [[*group, group[at]] for group, at in zip(groups, best, strict=True)]
    for group, results, at in zip(doubled, _scored(scorer, doubled), best, strict=True):
        if not results[at].same(results[-1]):
            what = f"of two members with the same text, one {results[at]} and one {results[-1]}"
            findings.add("error", "equal members", what, group[at].text)
