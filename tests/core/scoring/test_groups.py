"""Rewards of scope "group": one call for the completions of a prompt, in every room, and failures of its own."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE, Clock, wait_for

from grpo import Completion, Component, Scored, reward, rubric
from grpo.core.env.mixture import RunEnv
from grpo.core.env.scores import scores_by_env
from grpo.core.scoring.scorer import Outcome, Scorer
from grpo.plugins._spec.binding import BoundEnv, BoundReward
from grpo.plugins.errors import SpecError, TransientError
from grpo.plugins.specs import EnvSpec
from grpo.plugins.types import Isolation

CALLS: list[tuple[str, ...]] = []


def rank(completions: list[str], answer: str, *, best: float = 1.0) -> list[float | None]:
    """The share of the others that are no shorter; abstains on "no"."""
    CALLS.append((*completions, answer))
    others = len(completions) - 1
    beaten = [sum(len(other) >= len(text) for other in completions) - 1 for text in completions]
    return [
        None if text == "no" else best * (count / others if others else 1.0)
        for text, count in zip(completions, beaten, strict=True)
    ]


async def awaited_rank(completions: list[str], answer: str) -> list[float | None]:
    return rank(completions, answer)


def bound(function: Callable[..., Any] = rank, isolation: Isolation = "inline", **metadata: Any) -> BoundReward:
    spec = reward(version=1, name="mine", scope="group", isolation=isolation, **metadata)(function)
    return BoundReward(spec, "their-dist", timeout=spec.timeout)


def members(group: int | None, *texts: str, row: dict[str, Any] | None = None) -> list[Completion]:
    answer = {"answer": str(group)} if row is None else row
    return [Completion(text, row=answer, group=group) for text in texts]


def scores(plugin: BoundReward, completions: list[Completion], **settings: Any) -> list[Outcome]:
    with Scorer([plugin], workers=2, **{"retries": 0, **settings}) as scorer:
        return scorer.score(completions)["mine"]


MIXED = [
    *members(0, "aa", "b"),
    *members(7, "no", "dddd"),
    *members(0, "ccc"),
    *members(7, "e"),
    *members(None, "f", "g"),
]
EXPECTED = [0.5, 1.0, None, 0.0, 0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("isolation", ["inline", "thread", "process"])
def test_members_that_stand_apart_are_one_call_and_get_their_own_scores(isolation: Isolation) -> None:
    CALLS.clear()
    found = scores(bound(isolation=isolation), MIXED)
    assert [outcome.score for outcome in found] == EXPECTED
    assert found[2].kind == "abstain"
    if isolation != "process":
        assert sorted(CALLS) == sorted(
            [("aa", "b", "ccc", "0"), ("no", "dddd", "e", "7"), ("f", "None"), ("g", "None")]
        )


def test_an_async_function_is_awaited_once_for_a_group() -> None:
    CALLS.clear()
    assert [outcome.score for outcome in scores(bound(awaited_rank), MIXED)] == EXPECTED
    assert len(CALLS) == 4


def test_a_function_that_asks_for_completions_sees_their_group_and_may_return_figures() -> None:
    def whole(completions: list[Completion], answer: str) -> list[Scored]:
        assert len({id(one.row) for one in completions}) == 1
        return [Scored(float(one.group == int(answer)), {"size": len(completions)}) for one in completions]

    found = scores(bound(whole), members(3, "a", "b") + members(4, "c"))
    assert [(outcome.score, outcome.metrics) for outcome in found] == [(1.0, {"size": 2})] * 2 + [(1.0, {"size": 1})]


def test_options_are_bound_as_for_any_reward() -> None:
    plugin = replace(bound(), options={"best": 0.25})
    assert [outcome.score for outcome in scores(plugin, members(0, "a", "bb"))] == [0.25, 0.0]


def test_a_call_that_fails_fails_each_member_by_its_row_and_no_other_group() -> None:
    def picky(completions: list[str], answer: str) -> list[float]:
        if answer == "1":
            raise ValueError("cannot compare these")
        return [1.0] * len(completions)

    found = scores(bound(picky), [*members(0, "a"), *members(1, "b", "c"), *members(2, "d")])
    assert [outcome.kind for outcome in found] == ["score", "failure", "failure", "score"]
    assert found[1].reason == "reward 'mine' of their-dist, row 1: ValueError: cannot compare these"
    assert found[2].reason == "reward 'mine' of their-dist, row 2: ValueError: cannot compare these"


@pytest.mark.parametrize(
    ("value", "kinds", "words"),
    [
        ([1.0], ["failure"] * 2, "its group function returned 1 values for 2 completions"),
        (1.0, ["failure"] * 2, "its group function returned a float; it returns a list"),
        ({"a": 1.0, "b": 0.0}, ["failure"] * 2, "its group function returned a dict"),
        ([1.0, float("nan")], ["score", "failure"], "it returned nan"),
        ([None, "1"], ["abstain", "failure"], "it returned '1', a str"),
    ],
)
def test_what_is_returned_is_one_score_or_none_for_each_member(value: Any, kinds: list[str], words: str) -> None:
    found = scores(bound(lambda completions: value, range=(0.0, 1.0)), members(0, "a", "b"))
    assert [outcome.kind for outcome in found] == kinds
    assert words in (found[1].reason or "")


@pytest.mark.slow
def test_a_transient_error_is_tried_again_for_the_group() -> None:
    calls: list[list[str]] = []

    def flaky(completions: list[str]) -> list[float]:
        calls.append(completions)
        if len(calls) == 1:
            raise TransientError("busy")
        return [1.0] * len(completions)

    found = scores(bound(flaky), members(0, "a", "b"), retries=1)
    assert [outcome.score for outcome in found] == [1.0, 1.0]
    assert calls == [["a", "b"]] * 2


def hanging(completions: list[str], mark: str) -> list[float]:
    if "hang" in completions:
        Path(mark).touch()
        time.sleep(2 * PATIENCE)
    return [1.0] * len(completions)


def dying(completions: list[str]) -> list[float]:
    if "die" in completions:
        os._exit(3)
    return [1.0] * len(completions)


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_group_past_its_time_limit_fails_alone(
    isolation: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, "grpo.core.scoring.threads", "grpo.core.scoring.workers.pool")
    mark = tmp_path / "begun"
    row = {"mark": str(mark)}
    completions = [*members(0, "a", "b", row=row), *members(1, "c", "hang", row=row), *members(2, "d", row=row)]
    with Scorer([bound(hanging, isolation, timeout=PATIENCE)], workers=1, retries=0) as scorer:
        early = scorer.early(2)
        early.begin(range(5), completions)
        assert wait_for(lambda: mark.exists() and early.waiting() == 2)
        clock.forward()
        found = scorer.score(completions, early=early)["mine"]
    assert [outcome.kind for outcome in found] == ["score", "score", "failure", "failure", "score"]
    assert "longer than its time limit of 60 s" in (found[2].reason or "")


@pytest.mark.core
def test_a_crash_of_its_process_costs_one_group() -> None:
    completions = [one for group in range(20) for one in members(group, "a", "die" if group == 11 else "b")]
    found = scores(bound(dying, "process"), completions)
    assert [index for index, outcome in enumerate(found) if outcome.kind == "failure"] == [22, 23]
    assert "ended with exit code 3" in (found[22].reason or "")


@pytest.mark.slow
def test_a_row_that_cannot_be_sent_costs_its_group() -> None:
    completions = [one for group in range(6) for one in members(group, "a", "bb")]
    lock = {"answer": threading.Lock()}
    completions[4:6] = [replace(one, row=lock) for one in completions[4:6]]
    found = scores(bound(isolation="process"), completions)
    assert [index for index, outcome in enumerate(found) if outcome.kind == "failure"] == [4, 5]
    assert "cannot be sent to a worker process" in (found[4].reason or "")


@pytest.mark.slow
def test_many_groups_keep_their_members_in_worker_processes() -> None:
    completions = [one for group in range(300) for one in members(group, "a" * (1 + group % 5), "bbb", "cccc")]
    away, here = scores(bound(isolation="process"), completions), scores(bound(), completions)
    assert [outcome.score for outcome in away] == [outcome.score for outcome in here]


def test_a_rollout_that_its_environment_failed_is_no_member() -> None:
    lost = Completion("", row={"answer": "0"}, group=0, finish_reason="error", info={"failure": "fell over"})
    CALLS.clear()
    found = scores(bound(), [*members(0, "a"), lost, *members(0, "bb")])
    assert [outcome.kind for outcome in found] == ["score", "failure", "score"]
    assert CALLS == [("a", "bb", "0")]


def test_rows_that_differ_in_what_is_read_are_no_group_and_others_may_differ() -> None:
    differing = [*members(0, "a", row={"answer": "1"}), *members(0, "b", row={"answer": "2"}), *members(1, "c")]
    found = scores(bound(), differing)
    assert [outcome.kind for outcome in found] == ["failure", "failure", "score"]
    assert "the rows of its group differ in the column 'answer'" in (found[1].reason or "")
    fine = [*members(0, "a", row={"answer": "1", "line": 1}), *members(0, "b", row={"answer": "1", "line": 2})]
    assert [outcome.kind for outcome in scores(bound(), fine)] == ["score", "score"]


def test_a_group_whose_row_lacks_a_column_fails_without_a_call() -> None:
    CALLS.clear()
    found = scores(bound(), members(0, "a", "b", row={"gold": "1"}))
    assert [outcome.kind for outcome in found] == ["failure", "failure"]
    assert "it needs the column 'answer'; the row has: gold" in (found[0].reason or "")
    assert CALLS == []


@pytest.mark.parametrize("isolation", ["thread", "process", "inline"])
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [5, 3, 1, 4, 2, 0], [4, 0]], ids=["in order", "mixed", "a part"])
def test_in_whatever_order_members_end_the_outcomes_are_those_of_the_whole_batch(
    isolation: Isolation, order: list[int]
) -> None:
    batch = [*members(0, "aa", "b", "ccc"), *members(1, "dd", "d", "no")]
    batch[1] = replace(batch[1], finish_reason="error", info={"failure": "fell over"})
    CALLS.clear()
    with Scorer([bound(isolation=isolation)], workers=1) as scorer:
        early = scorer.early(3)
        for row in order:
            early.begin([row], [batch[row]])
        if isolation == "thread" and len(order) == 6:
            assert wait_for(lambda: len(CALLS) == 2)
            assert sorted(CALLS) == [("aa", "ccc", "0"), ("dd", "d", "no", "1")], "a complete group is begun at once"
        found = scorer.score(batch, early=early)["mine"]
    assert [outcome.score for outcome in found] == [1.0, None, 0.0, 0.5, 1.0, None]
    assert [outcome.kind for outcome in found] == ["score", "failure", "score", "score", "score", "abstain"]
    assert isolation == "process" or len(CALLS) == 2, "a group was called twice"


def marked(completion: str) -> float:
    return float(completion.startswith("#"))


FORM = reward(version=1, range=(0.0, 1.0), isolation="inline")(marked)
SHORT = reward(version=1, name="short", range=(0.0, 1.0), scope="group", isolation="inline")(rank)


def test_in_a_rubric_it_sees_the_members_that_the_gate_let_through() -> None:
    gated = rubric(name="gated", version=1, components=[Component(FORM, 0.5, gate=True), Component(SHORT, 0.5)])
    assert gated.scope == "group"
    assert BoundReward(gated, "d").grouped
    CALLS.clear()
    with Scorer([BoundReward(gated, "d")], retries=0) as scorer:
        found = scorer.score([*members(0, "#aa", "x", "#b"), *members(1, "y")])
    assert CALLS == [("#aa", "#b", "0")]
    assert [outcome.score for outcome in found["gated"]] == [0.5, 0.0, 1.0, 0.0]
    assert found["gated.short"][1].reason == "not called: the gate 'gated.marked' scored 0, below 1."
    assert gated(["#aa", "x", "#b"], "0") == [0.5, 0.0, 1.0]
    assert gated("#aa", "0") == 1.0, "one completion is a group of one"


def test_it_can_be_the_gate_and_the_gate_is_open_for_each_member_by_its_own_score() -> None:
    gated = rubric(
        name="gated",
        version=1,
        components=[Component(SHORT, 0.5, gate=True, passes=0.5), Component(FORM, 0.5)],
    )
    with Scorer([BoundReward(gated, "d")], retries=0) as scorer:
        found = scorer.score(members(0, "#", "#aa", "#bbb"))
    assert [outcome.score for outcome in found["gated"]] == [1.0, 0.75, 0.0]
    assert [outcome.kind for outcome in found["gated.marked"]] == ["score", "score", "abstain"]


def test_a_failed_group_fails_the_rubric_of_its_members_only() -> None:
    broken = reward(version=1, name="broken", range=(0.0, 1.0), scope="group", isolation="inline")(
        lambda completions, answer: [1.0] * (len(completions) - int(answer))
    )
    both = rubric(name="both", version=1, components=[Component(FORM), Component(broken)])
    with Scorer([BoundReward(both, "d")], retries=0) as scorer:
        found = scorer.score([*members(0, "#a", "b"), *members(1, "#a", "b")])["both"]
    assert [outcome.score for outcome in found] == [2.0, 1.0, None, None]
    assert "its group function returned 1 values for 2 completions" in (found[2].reason or "")


def test_with_several_environments_each_group_goes_to_its_own_rewards_and_so_do_components() -> None:
    spec = replace(SHORT, isolation="thread")
    parts = rubric(name="parts", version=1, components=[Component(spec)])
    envs = tuple(
        RunEnv(
            BoundEnv(EnvSpec(name, 1, lambda: None), "d"),
            (BoundReward(plugin, "d", alias=f"{name}.mine", env=name),),
            None,
            (),
            (),
            0.5,
        )
        for name, plugin in (("words", spec), ("sums", parts))
    )
    batch = [replace(one, env="words") for one in members(0, "a", "bb")]
    batch += [replace(one, env="sums") for one in members(1, "ccc", "d")]
    CALLS.clear()
    with Scorer([one for each in envs for one in each.rewards]) as scorer:
        early = scorer.early(2)
        early.begin(range(4), batch)
        found = scores_by_env(scorer, envs, batch, early)
    assert [outcome.score for outcome in found["words.mine"]] == [1.0, 0.0, None, None]
    assert [outcome.score for outcome in found["sums.mine"]] == [None, None, 0.0, 1.0]
    assert sorted(CALLS) == [("a", "bb", "0"), ("ccc", "d", "1")]


def test_the_decorator_refuses_what_cannot_be_a_group_reward_in_words() -> None:
    decorate: Any = reward  # a type checker refuses these, too
    with pytest.raises(SpecError, match=r"batch=True gives a function the whole batch.*Keep one of them"):
        decorate(version=1, scope="group", batch=True)(rank)
    with pytest.raises(SpecError, match=r"with scope='group' the first parameter is 'completions'.* not 'completion'"):
        decorate(version=1, scope="group")(marked)
    with pytest.raises(SpecError, match="scope 'prompt' must be one of completion, group"):
        decorate(version=1, scope="prompt")(rank)
