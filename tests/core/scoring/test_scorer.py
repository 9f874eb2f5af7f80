"""The scorer with inline rewards: outcomes, failures, retries, and where it may be called from."""

from __future__ import annotations

import asyncio
import math
import random
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from grpo import Completion, Scored, Verdict, reward, verifier
from grpo.core.scoring.scorer import Judgement, Outcome, Scorer
from grpo.plugins._spec.binding import BoundReward, BoundVerifier
from grpo.plugins.errors import TransientError, UsageError


@reward(version=1, aliases={"numbers": ["nums"]})
def renamed(completion: str, numbers: str) -> float:
    return float(completion == numbers)


@reward(version=1, batch=True, aliases={"numbers": ["nums"]})
def renamed_batch(completions: list[str], numbers: list[str]) -> list[float]:
    return [float(text == number) for text, number in zip(completions, numbers, strict=True)]


def bound(function: Callable[..., Any], name: str = "mine", **metadata: Any) -> BoundReward:
    spec = reward(version=1, name=name, isolation="inline", **metadata)(function)
    return BoundReward(spec, "their-dist", timeout=spec.timeout)


def returning(value: Any) -> Callable[[str], Any]:
    def function(completion: str) -> Any:
        return value

    return function


def outcome_of(function: Callable[..., Any], **metadata: Any) -> Outcome:
    with Scorer([bound(function, **metadata)], retries=0) as scorer:
        (outcome,) = scorer.score([Completion("a")])["mine"]
    return outcome


@pytest.mark.parametrize(
    "value", [1.0, 1, True, np.bool_(True), np.float32(1.0), np.int64(1), np.array(1), Fraction(1), Decimal(1)]
)
def test_a_real_number_is_a_score_and_comes_back_as_a_float(value: Any) -> None:
    outcome = outcome_of(returning(value))
    assert (outcome.kind, outcome.score, outcome.reason) == ("score", 1.0, None)
    assert type(outcome.score) is float
    assert outcome.seconds >= 0.0


@pytest.mark.parametrize("value", [False, np.bool_(False), np.int64(0)])
def test_what_is_false_scores_zero(value: Any) -> None:
    outcome = outcome_of(returning(value), range=(0.0, 1.0))
    assert (outcome.kind, outcome.score, type(outcome.score)) == ("score", 0.0, float)


def test_none_is_an_abstention() -> None:
    outcome = outcome_of(returning(None))
    assert (outcome.kind, outcome.score, outcome.reason) == ("abstain", None, None)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "nan"),
        (math.inf, "inf"),
        (10**400, "not a float"),
        ("1.0", "a str"),
        ([1.0], "a list"),
        (1j, "a complex"),
        (np.array([1.0]), "a ndarray"),
        (1.5, "outside its range 0 to 1"),
        (-0.1, "outside its range 0 to 1"),
    ],
)
def test_a_value_that_is_no_score_is_a_failure_that_names_plugin_and_row(value: Any, words: str) -> None:
    outcome = outcome_of(returning(value), range=(0.0, 1.0))
    assert (outcome.kind, outcome.score) == ("failure", None)
    assert outcome.reason is not None
    assert outcome.reason.startswith("reward 'mine' of their-dist, row 0: ")
    assert words in outcome.reason


def test_infinity_is_refused_without_a_declared_range_too() -> None:
    assert outcome_of(returning(-math.inf)).kind == "failure"


def test_a_crashing_reward_is_never_a_zero_and_costs_its_own_row_only() -> None:
    def picky(completion: str) -> float:
        if completion == "bad":
            raise ValueError("no\nthanks")
        return 1.0

    with Scorer([bound(picky)]) as scorer:
        outcomes = scorer.score([Completion("good"), Completion("bad"), Completion("good")])["mine"]
        assert [o.kind for o in outcomes] == ["score", "failure", "score"]
        assert outcomes[1] == Outcome(
            "failure", None, "reward 'mine' of their-dist, row 1: ValueError: no thanks", outcomes[1].seconds
        )
        assert "in picky" in scorer.first_failure["mine"]
        scorer.score([Completion("good"), Completion("good"), Completion("good"), Completion("bad")])
        assert "row 1" in scorer.first_failure["mine"]


def test_cheap_calls_of_a_batch_read_as_each_of_them_alone() -> None:
    values = [0.5, 1, True, None, math.nan, math.inf, -1.5, 2, 10**400, "0.5", Scored(0.25, {"seen": 1.0}), Scored(7.0)]
    raised = [ValueError("no"), StopIteration("none left"), KeyError("gone")]

    def mixed(completion: str) -> Any:
        value = [*values, *raised][int(completion)]
        if isinstance(value, Exception):
            raise value
        return value

    chance = random.Random(3)
    usual = [0, 1, 2]
    texts = [str(chance.choice([*range(len(values) + len(raised)), *usual * 20])) for _ in range(600)]
    texts += ["0"] * 300 + [str(values.index(None)), "13", "1"]
    completions = [Completion(text) for text in texts]
    with Scorer([bound(mixed, range=(0.0, 1.0))]) as scorer:
        batch = scorer.score(completions)["mine"]
        alone = [scorer.score([one], rows=[row])["mine"][0] for row, one in enumerate(completions)]
    assert [one._replace(seconds=0.0) for one in batch] == [one._replace(seconds=0.0) for one in alone]
    assert {one.kind for one in batch} == {"score", "abstain", "failure"}
    assert all(isinstance(one.score, float) for one in batch if one.kind == "score")
    assert "StopIteration: none left" in str(batch[-2].reason)


def test_an_exception_that_cannot_be_printed_is_still_a_failure() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def crash(completion: str) -> float:
        raise Mute

    assert "Mute: (its message cannot be printed)" in (outcome_of(crash).reason or "")


def test_sys_exit_is_a_failure() -> None:
    assert "SystemExit: 3" in (outcome_of(lambda completion: sys.exit(3)).reason or "")


def test_ctrl_c_on_the_main_thread_is_the_users() -> None:
    def interrupted(completion: str) -> float:
        raise KeyboardInterrupt

    with Scorer([bound(interrupted)]) as scorer, pytest.raises(KeyboardInterrupt):
        scorer.score([Completion("a")])


def test_a_missing_column_fails_the_row_that_lacks_it() -> None:
    def near(completion: str, answer: str) -> float:
        return float(completion == answer)

    with Scorer([bound(near)]) as scorer:
        rows: list[dict[str, Any]] = [{"answer": "a"}, {"gold": "a"}]
        good, bad = scorer.score([Completion("a", row=row) for row in rows])["mine"]
    assert good.score == 1.0
    assert bad.reason == "reward 'mine' of their-dist, row 1: it needs the column 'answer'; the row has: gold."


def test_a_plain_function_that_returns_a_coroutine_is_told_what_to_write() -> None:
    async def inner() -> float:
        return 1.0

    assert "'async def'" in (outcome_of(lambda completion: inner()).reason or "")


@pytest.mark.slow
def test_transient_trouble_is_retried() -> None:
    calls: list[str] = []

    def flaky(completion: str) -> float:
        calls.append(completion)
        if len(calls) < 2:
            raise TransientError("busy")
        return 1.0

    with Scorer([bound(flaky)]) as scorer:
        assert scorer.score([Completion("a")])["mine"][0].score == 1.0
        assert scorer.first_failure == {}
    assert len(calls) == 2


@pytest.mark.slow
def test_transient_trouble_that_stays_is_a_failure_and_other_trouble_is_not_retried() -> None:
    calls: list[str] = []

    def down(completion: str) -> float:
        calls.append(completion)
        raise ConnectionError("refused") if completion == "net" else ValueError("no")

    with Scorer([bound(down)], retries=1) as scorer:
        outcomes = scorer.score([Completion("net"), Completion("other")])["mine"]
    assert [outcome.kind for outcome in outcomes] == ["failure", "failure"]
    assert calls == ["net", "net", "other"]


def test_trouble_that_is_not_transient_is_not_tried_again() -> None:
    calls: list[str] = []

    def wrong(completion: str) -> float:
        calls.append(completion)
        raise ValueError("no")

    with Scorer([bound(wrong)], retries=2) as scorer:
        assert scorer.score([Completion("a")])["mine"][0].kind == "failure"
    assert calls == ["a"]


@pytest.mark.parametrize("isolation", ["inline", "thread", "process"])
@pytest.mark.parametrize("batch", [False, True])
def test_a_column_with_another_name_reaches_every_room(isolation: Any, batch: bool) -> None:
    rows = [Completion("7", row={"nums": "7"}), Completion("7", row={"numbers": "8", "nums": "7"}), Completion("7")]
    spec = replace(renamed_batch if batch else renamed, isolation=isolation)
    with Scorer([BoundReward(spec, "dist")], workers=1) as scorer:
        outcomes = scorer.score(rows)[spec.name]
    assert [outcome.score for outcome in outcomes] == [1.0, 0.0, None]
    assert "'numbers'" in (outcomes[2].reason or "")


def test_a_batch_reward_gets_the_batch_without_the_rows_that_lack_a_column() -> None:
    seen: list[Any] = []

    def lengths(completions: list[str], answer: list[str]) -> list[float | None]:
        seen.append((completions, answer))
        return [None if text == "b" else float(len(text)) for text in completions]

    with Scorer([bound(lengths, batch=True)]) as scorer:
        rows: list[dict[str, str]] = [{"answer": "1"}, {}, {"answer": "3"}, {"answer": "4"}]
        texts = ["aa", "x", "b", "cccc"]
        outcomes = scorer.score([Completion(t, row=r) for t, r in zip(texts, rows, strict=True)])["mine"]
        assert scorer.score([]) == {"mine": []}
    assert seen == [(["aa", "b", "cccc"], ["1", "3", "4"])]
    assert [(o.kind, o.score) for o in outcomes] == [
        ("score", 2.0),
        ("failure", None),
        ("abstain", None),
        ("score", 4.0),
    ]


@pytest.mark.parametrize("value", [[1.0], [1.0, 2.0, 3.0], 1.0, None, "12", {1: 1.0, 2: 2.0}, iter([1.0, 2.0])])
def test_a_batch_reward_of_the_wrong_length_fails_every_row(value: Any) -> None:
    with Scorer([bound(returning(value), batch=True)]) as scorer:
        outcomes = scorer.score([Completion("a"), Completion("b")])["mine"]
    assert [outcome.kind for outcome in outcomes] == ["failure", "failure"]
    assert "its batch function returned" in (outcomes[1].reason or "")


def test_verdicts_are_judgements_and_anything_else_is_a_failure() -> None:
    def judge(completion: str) -> Any:
        return {"right": Verdict(True, "4"), "open": Verdict(None), "odd": Verdict(1), "none": None}[completion]  # type: ignore[arg-type]

    plugin = BoundVerifier(verifier(version=1, isolation="inline")(judge), "their-dist")
    with Scorer([plugin, bound(returning(1.0))]) as scorer:
        right, undecided, odd, nothing = scorer.judge([Completion(t) for t in ("right", "open", "odd", "none")])[
            "judge"
        ]
        assert list(scorer.score([Completion("right")])) == ["mine"]
    assert right == Judgement("verdict", Verdict(True, "4"))
    assert undecided.verdict == Verdict(None)
    assert odd.kind == nothing.kind == "failure"
    assert "ok=1" in (odd.reason or "")
    assert nothing.reason == (
        "verifier 'judge' of their-dist, row 3: it returned None, a NoneType; a verifier returns a Verdict, or a bool."
    )


def test_it_scores_inside_a_running_loop_and_in_another_thread() -> None:
    with Scorer([bound(returning(1.0))]) as scorer:

        async def inside() -> float | None:
            return scorer.score([Completion("a")])["mine"][0].score

        assert asyncio.run(inside()) == 1.0
        scores: list[float | None] = []
        thread = threading.Thread(target=lambda: scores.append(scorer.score([Completion("a")])["mine"][0].score))
        thread.start()
        thread.join()
        assert scores == [1.0]


def test_inline_rewards_start_no_thread_and_no_process() -> None:
    before = threading.active_count()
    with Scorer([bound(returning(1.0))]) as scorer:
        scorer.score([Completion("a")])
        assert threading.active_count() == before


def test_rows_can_be_numbered_by_the_caller() -> None:
    with Scorer([bound(returning("x"))]) as scorer:
        assert "row 41:" in (scorer.score([Completion("a")], rows=[41])["mine"][0].reason or "")


def test_two_rewards_of_one_name_and_impossible_counts_are_refused() -> None:
    with pytest.raises(UsageError, match="two rewards are named 'mine'"):
        Scorer([bound(returning(1.0)), bound(returning(2.0))])
    with pytest.raises(UsageError, match="workers is 0"):
        Scorer([], workers=0)
    with pytest.raises(UsageError, match="retries is -1"):
        Scorer([], retries=-1)


def test_a_closed_scorer_says_so() -> None:
    scorer = Scorer([bound(returning(1.0))])
    scorer.close()
    scorer.close()
    with pytest.raises(ValueError, match="closed"):
        scorer.score([Completion("a")])


def test_figures_beside_a_score_come_with_its_outcome_from_every_room() -> None:
    value = Scored(0.5, {"tokens": 7, "seconds": 0.25})
    for isolation in ("inline", "thread", "process"):
        plugin = bound(returning(value))
        with Scorer([replace(plugin, spec=replace(plugin.spec, isolation=isolation))], workers=1) as scorer:
            [outcome] = scorer.score([Completion("a")])["mine"]
        assert (outcome.kind, outcome.score, outcome.metrics) == ("score", 0.5, {"tokens": 7, "seconds": 0.25})
    abstained = outcome_of(returning(Scored(None, {"tokens": 7})))
    assert (abstained.kind, abstained.metrics) == ("abstain", {"tokens": 7})
    assert outcome_of(returning(0.5)).metrics is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Scored(2.0, {"tokens": 1}), "outside its range 0 to 1"),
        (Scored(math.nan), "a score is finite"),
        (Scored(Scored(1.0)), "holds another one"),  # type: ignore[arg-type]
        (Scored(1.0, {"tokens": math.inf}), "the metric tokens=inf"),
        (Scored(1.0, {"tokens": "7"}), "the metric tokens='7'"),  # type: ignore[dict-item]
        (Scored(1.0, {"ok": True}), "the metric ok=True"),
        (Scored(1.0, {"failure": 0.0}), "named 'failure', which is taken"),
        (Scored(1.0, {"a\ud800": 0.0}), r"named 'a\ud800', which cannot be shown"),
        (Scored(1.0, {1: 0.0}), "named 1, which is taken"),  # type: ignore[dict-item]
        (Scored(1.0, [1.0]), "metrics that are a list"),  # type: ignore[arg-type]
    ],
)
def test_figures_that_are_none_fail_their_row(value: Any, words: str) -> None:
    outcome = outcome_of(returning(value), range=(0.0, 1.0))
    assert outcome.kind == "failure"
    assert words in (outcome.reason or "")


def test_a_recorded_outcome_has_metrics_only_where_the_reward_gave_some() -> None:
    plain = {"outcome": "score", "score": 0.5, "reason": None}
    assert outcome_of(returning(0.5)).as_json() == plain
    assert outcome_of(returning(Scored(0.5))).as_json() == plain
    assert outcome_of(returning(Scored(0.5, {"tokens": 7}))).as_json() == {**plain, "metrics": {"tokens": 7}}
