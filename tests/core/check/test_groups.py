"""Checks of rewards that score groups find what is planted in them, and hold for an honest one."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted_plugin import errors, planted

from grpo import check_reward

GROUPS = """
@reward(version=1, scope="group", range=(0.0, 1.0), isolation="inline", cases=[
    Case(["It is 72", "Hence it is 72", "It is 7"], row={"answer": "72"}, expect=[1.0, 0.5, 0.0]),
])
def mine(completions: list[str], answer: str) -> list[float]:
    scores = [right(text, answer) for text in completions]
"""


@pytest.mark.slow
def test_an_honest_reward_of_groups_keeps_every_relation(tmp_path: Path) -> None:
    body = """
    shortest = min((len(t.split()) for t, score in zip(completions, scores) if score), default=0)
    return [score * (1.0 if len(t.split()) == shortest else 0.5) for t, score in zip(completions, scores)]
"""
    report = check_reward(planted(tmp_path, GROUPS + body))
    assert report.findings == (), str(report)
    own = {"member alone", "other groups", "group order", "permuted members", "equal members"}
    executors = {"calling thread", "worker thread", "worker process", "batch of one", "permuted batch", "row unchanged"}
    assert own | executors | {"cases", "silence", "1 MB of text", "missing column"} <= set(report.relations)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "found"),
    [
        (
            "    return [score * (i == 0) for i, score in enumerate(scores)]",
            {"cases", "permuted members", "equal members"},
        ),
        ("    COUNT.append(1)\n    return [score / len(COUNT) for score in scores]", {"other groups", "group order"}),
        ("    middle = sorted(scores)[1]\n    return [score * middle for score in scores]", {"member alone"}),
        ("    return scores[:2]", {"no crash"}),
        ("    return [score / len(completions) for score in scores]", {"cases"}),
    ],
    ids=["the order of members", "state between groups", "a member alone", "too few scores", "the cases"],
)
def test_a_reward_of_groups_that_breaks_a_relation_is_told(tmp_path: Path, body: str, found: set[str]) -> None:
    report = check_reward(planted(tmp_path, "COUNT = []\n" + GROUPS + body))
    assert found <= errors(report), str(report)


def test_a_reward_that_only_compares_says_that_alone_it_tells_nothing(tmp_path: Path) -> None:
    report = check_reward(
        planted(
            tmp_path,
            """
            @reward(version=1, scope="group", range=(0.0, 1.0), isolation="inline", cases=[
                Case(["a", "a", "b"], expect=[0.5, 0.5, 1.0]),
            ])
            def mine(completions: list[str]) -> list[float]:
                return [1 / completions.count(text) for text in completions]
            """,
        )
    )
    assert [(finding.severity, finding.relation) for finding in report.findings] == [("note", "member alone")]


def test_a_rubric_with_a_reward_of_groups_is_checked_as_a_group(tmp_path: Path) -> None:
    spec = planted(
        tmp_path,
        """
        from grpo import Component, rubric

        @reward(version=1, scope="group", range=(0.0, 1.0), isolation="inline")
        def first(completions: list[str]) -> list[float]:
            return [float(i == 0) for i, text in enumerate(completions)]

        @reward(version=1, range=(0.0, 1.0), isolation="inline")
        def stated(completion: str, answer: str) -> float:
            return right(completion, answer)

        mine = rubric(name="mine", version=1, components=[Component(stated), Component(first)], cases=[
            Case(["It is 72", "So it is 72"], row={"answer": "72"}, expect=[2.0, 1.0]),
        ])
        """,
    )
    assert {"permuted members", "equal members"} <= errors(check_reward(spec))
