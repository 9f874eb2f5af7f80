"""Checks a reward that scores groups: no order of members or groups may change a score."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from grpo.core.check.answers import Example
from grpo.core.check.executors import check_executors
from grpo.core.check.report import Findings
from grpo.core.check.scores import Bound, Seen, note_failure, see, units_of
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
    scores = see(scorer, together)
    for example, seen in zip(together, scores, strict=True):
        note_failure(findings, seen, example)
    if any(seen.kind == "failure" for seen in scores):
        return
    _member_alone(scorer, together, findings)
    expected = [[scores[index] for index in unit] for unit in units_of(together)]
    one_by_one = [see(scorer, group) for group in groups]
    _compare("other groups", "without the other groups of the batch it", groups, one_by_one, expected, findings)
    backwards = _scored(scorer, groups[::-1])[::-1]
    _compare("group order", "with the groups in another order it", groups, backwards, expected, findings)
    rng = random.Random(_SHUFFLE)
    for order in ([*range(len(group))][::-1] for group in groups), (rng.sample(range(len(g)), len(g)) for g in groups):
        orders = list(order)
        moved = _scored(scorer, [[group[at] for at in o] for group, o in zip(groups, orders, strict=True)])
        back = [[found[o.index(at)] for at in range(len(o))] for found, o in zip(moved, orders, strict=True)]
        _compare("permuted members", "in another order of the members it", groups, back, expected, findings)
    _equal_members(scorer, groups, expected, findings)
    check_executors(bound, together, scores, findings, isolation)


def _groups(cases: Iterable[Case]) -> list[Group]:
    """Returns the groups to try, numbered: those of the cases, and of each row all texts, with an empty one."""
    found: list[tuple[list[str], Case]] = []
    by_row: dict[str, tuple[list[str], Case]] = {}
    for case in cases:
        texts, _ = by_row.setdefault(repr(sorted(case.row.items())), ([], case))
        texts += [text for text in case.texts if text not in texts][: _MOST_MEMBERS - 1 - len(texts)]
        if case.several:
            found.append((list(case.texts), case))
    found += [([*(text for text in texts if text), ""], case) for texts, case in by_row.values()]
    return [
        [Example(text, case.row, number) for text in texts] for number, (texts, case) in enumerate(found[:_MOST_GROUPS])
    ]


def _scored(scorer: Scorer, groups: Sequence[Group]) -> list[list[Seen]]:
    scores = iter(see(scorer, [member for group in groups for member in group]))
    return [[next(scores) for _ in group] for group in groups]


def _compare(
    relation: str,
    where: str,
    groups: Sequence[Group],
    got: Sequence[Sequence[Seen]],
    expected: Sequence[Sequence[Seen]],
    findings: Findings,
) -> None:
    findings.tried(relation)
    for group, there, here in zip(groups, got, expected, strict=True):
        for example, one, reference in zip(group, there, here, strict=True):
            if not one.same(reference):
                findings.add("error", relation, f"a member {reference}, and {where} {one}", example.text)


def _member_alone(scorer: Scorer, members: Sequence[Example], findings: Findings) -> None:
    findings.tried("member alone")
    alone = [Example(member.text, member.row) for member in members]
    for example, seen in zip(alone, see(scorer, alone), strict=True):
        if seen.kind == "failure":
            findings.add("error", "member alone", f"a group may have one member, and it {seen}", example.text)


def _equal_members(
    scorer: Scorer, groups: Sequence[Group], expected: Sequence[Sequence[Seen]], findings: Findings
) -> None:
    """Doubles the member of each group that scores most: both must score alike."""
    findings.tried("equal members")
    best = [
        max(range(len(group)), key=lambda at: _value(seen[at])) for group, seen in zip(groups, expected, strict=True)
    ]
    doubled = [[*group, group[at]] for group, at in zip(groups, best, strict=True)]
    for group, found, at in zip(doubled, _scored(scorer, doubled), best, strict=True):
        if not found[at].same(found[-1]):
            findings.add(
                "error",
                "equal members",
                f"of two members with the same text, one {found[at]} and one {found[-1]}",
                group[at].text,
            )


def _value(seen: Seen) -> float:
    return float("-inf") if seen.value is None else seen.value
