"""Which prompts a step asks: the sampler is given what became of all steps before, exactly, also when a run resumes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo.core.env.replacement_rows import Place
from grpo.core.plan import Plan
from grpo.core.rollout.turns.play import Trajectory
from grpo.core.scoring.outcome import Outcome
from grpo.core.train.advantages.compute import Advantages
from grpo.core.train.batch.batch import Batch
from grpo.core.train.sampling.prompts import FILE, Prompts
from grpo.core.train.types import Wasted
from grpo.plugins.errors import UsageError
from grpo.plugins.sampling import RowsSeen, Visit
from grpo.plugins.types import Completion

SAMPLERS = """
from grpo import RowsSeen, reward, sampler

@sampler(version=1)
def spy(seen: RowsSeen) -> list[int]:
    spy_saw.append(seen)
    free = [row for row in range(seen.rows) if row not in seen.taken]
    return seen.longest_ago(free)[: seen.count]

spy_saw = []

@sampler(version=1, fewer=True)
def sparing(seen: RowsSeen, *, most: int = 1) -> list[int]:
    return list(range(min(most, seen.count)))

@reward(version=1, range=(-1.0, 1.0), isolation="inline")
def signed(completion: str) -> float:
    return 0.0

@reward(version=1, range=(0.0, 2.0), isolation="inline")
def twice(completion: str) -> float:
    return 0.0

@reward(version=1, isolation="inline")
def unbounded(completion: str) -> float:
    return 0.0
"""


@pytest.fixture
def planned(tiny_model: Path, tmp_path: Path) -> Any:
    from grpo.core.config.schema import parse_config
    from grpo.core.planning.decide import make_plan
    from grpo.plugins.host import Host

    (tmp_path / "mine.py").write_text(SAMPLERS)

    def planned(*rewards: str, sampler: str | None = "spy", **more: Any) -> Plan:
        tree = {
            "env": "gsm8k",
            "dataset": "embedded",
            "model": str(tiny_model),
            "rewards": [f"{tmp_path}/mine.py:{name}" for name in rewards or ("signed",)],
            "sampler": sampler and f"{tmp_path}/mine.py:{sampler}",
            "out": str(tmp_path / "run"),
            "train": {"limit": 12, "prompts_per_step": 4, "group_size": 2, "steps": 5},
            "evaluation": {"size": 0},
        }
        return make_plan(parse_config({**tree, **more}), Host.discover())

    return planned


def saw(plan: Plan) -> RowsSeen:
    assert plan.sampler is not None
    found: RowsSeen = plan.sampler.spec.function.__globals__["spy_saw"][-1]
    return found


def batch(step: int, places: Sequence[Place], wasted: Sequence[Wasted] = (), **scores: Sequence[float | None]) -> Batch:
    outcomes = {
        name: [Outcome("failure" if one is None else "score", one) for one in every] for name, every in scores.items()
    }
    nothing = torch.zeros(0)
    return Batch(
        step=step,
        completions=(),
        outcomes=outcomes,
        advantages=Advantages(nothing, nothing, nothing, nothing, torch.tensor(0.0)),
        group_size=2,
        generate_seconds=0.0,
        score_seconds=0.0,
        wasted=tuple(wasted),
        places=tuple(places),
    )


def test_without_a_sampler_the_order_is_that_of_the_run(planned: Any) -> None:
    from grpo.core.train.sft.data import run_order

    plan = planned(sampler=None)
    prompts, order = Prompts(plan), run_order(plan)
    steps = [prompts.of_step(step) for step in range(1, 7)]
    assert [one.index for step in steps for one in step] == order
    assert [len(step) for step in steps] == [4, 4, 4, 4, 4, 0]


def test_totals_become_rates_between_the_lowest_and_the_highest(planned: Any) -> None:
    plan = planned("signed", "twice")
    prompts = Prompts(plan)
    places = [("gsm8k", 0)] * 2 + [("gsm8k", 5)] * 2 + [("gsm8k", 7)] * 2
    signed, twice = [1.0, -1.0, 0.5, 0.5, None, None], [2.0, 0.0, 0.5, 0.5, 1.0, None]
    prompts.note_batch(batch(1, places, signed=signed, twice=twice))
    assert len(prompts.of_step(2)) == 4
    assert saw(plan).visits == {0: [Visit(1, 0.5, True)], 5: [Visit(1, 0.5, False)], 7: [Visit(1, None, False)]}
    assert (saw(plan).rows, saw(plan).count, saw(plan).step) == (12, 4, 2)


def test_without_a_range_there_is_no_rate(planned: Any) -> None:
    plan = planned("unbounded")
    prompts = Prompts(plan)
    prompts.note_batch(batch(1, [("gsm8k", 3)] * 2, unbounded=[10.0, 20.0]))
    prompts.of_step(2)
    assert saw(plan).visits == {3: [Visit(1, None, True)]}


def test_what_was_sampled_in_vain_was_seen_too(planned: Any) -> None:
    plan = planned()
    prompts = Prompts(plan)
    completion = Completion("", prompt=(), row={})
    flat = {"signed": Outcome("score", -1.0)}
    gone = [Wasted(0, plan.train[9], (), Trajectory((), (), (), completion), flat) for _ in range(2)]
    prompts.note_batch(batch(1, [("gsm8k", 3)] * 2, gone, signed=[-1.0, 1.0]))
    prompts.of_step(2)
    assert saw(plan).visits == {3: [Visit(1, 0.5, True)], 9: [Visit(1, 0.0, False)]}


def test_a_step_that_is_done_again_sees_what_it_saw_before(planned: Any) -> None:
    plan = planned()
    prompts = Prompts(plan)
    prompts.note_batch(batch(1, [("gsm8k", 0)] * 2, signed=[-1.0, 1.0]))
    before = [one.index for one in prompts.of_step(2)]
    prompts.note_batch(batch(2, [("gsm8k", 0)] * 2 + [("gsm8k", 1)] * 2, signed=[1.0] * 4))
    assert [one.index for one in prompts.of_step(2)] == before
    assert saw(plan).visits == {0: [Visit(1, 0.5, True)]}
    prompts.note_batch(batch(2, [("gsm8k", 2)] * 2, signed=[1.0, 1.0]))
    prompts.of_step(3)
    assert saw(plan).visits == {0: [Visit(1, 0.5, True)], 2: [Visit(2, 1.0, False)]}


def test_a_resumed_run_asks_the_same_rows(planned: Any, tmp_path: Path) -> None:
    plan = planned("unbounded")
    prompts = Prompts(plan)
    for step in range(1, 4):
        asked = [("gsm8k", one.index) for one in prompts.of_step(step) for _ in range(2)]
        prompts.note_batch(batch(step, asked, unbounded=[0.1 * number * step for number in range(8)]))
    prompts.save(tmp_path)
    resumed = Prompts(plan)
    resumed.load(tmp_path)
    assert resumed.of_step(4) == prompts.of_step(4)
    own = saw(plan).visits
    prompts.of_step(4)
    assert saw(plan).visits == own
    Prompts(planned(sampler=None)).save(tmp_path / "none")
    assert not (tmp_path / "none" / FILE).exists()


def test_what_was_seen_is_not_taken_for_nothing_where_its_file_is_missing(planned: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no rows_seen\.json, from which sampler 'spy'"):
        Prompts(planned()).load(tmp_path)
    Prompts(planned(sampler=None)).load(tmp_path)


def test_a_step_of_more_prompts_than_rows_asks_some_twice(planned: Any) -> None:
    plan = planned(train={"limit": 3, "prompts_per_step": 4, "group_size": 2, "steps": 5})
    asked = [one.index for one in Prompts(plan).of_step(1)]
    assert {*asked} == {0, 1, 2}
    assert len(asked) == 4


def test_each_environment_keeps_its_share_and_has_rows_of_its_own(planned: Any) -> None:
    envs = ["gsm8k:dataset=embedded,weight=3", "gsm8k:dataset=embedded,as=other"]
    plan = planned(env=envs, dataset=None)
    prompts = Prompts(plan)
    order = Prompts(planned(env=envs, dataset=None, sampler=None))
    for step in range(1, 6):
        assert [one.env for one in prompts.of_step(step)] == [one.env for one in order.of_step(step)]
    scores: dict[str, Any] = {"gsm8k.signed": [0.0, 0.0], "other.signed": [-1.0, 1.0]}
    prompts.note_batch(batch(5, [("other", 2)] * 2, **scores))
    assert prompts.chosen("other", 1, 6, ())
    assert saw(plan).visits == {2: [Visit(5, 0.5, True)]}
    assert prompts.chosen("gsm8k", 1, 6, ())
    assert saw(plan).visits == {}


def test_a_sampler_may_have_a_step_ask_fewer_prompts(planned: Any) -> None:
    prompts = Prompts(planned(sampler="sparing:most=3"))
    assert [one.index for one in prompts.of_step(2)] == [0, 1, 2]
    assert prompts.of_step(6) == []


@pytest.mark.parametrize(("size", "asked"), [(2, [0]), (1, [0, 0]), (3, [0, 0])])
def test_processes_get_the_same_share_of_fewer_prompts(planned: Any, size: int, asked: list[int]) -> None:
    plan = planned(
        sampler="sparing", train={"limit": 12, "prompts_per_step": 4, "group_size": max(size, 2), "steps": 5}
    )
    config = plan.config.model_copy(update={"train": plan.config.train.model_copy(update={"group_size": size})})
    prompts = Prompts(replace(plan, config=config, processes=2))
    assert [one.index for one in prompts.of_step(2)] == asked


def test_rows_come_again_where_an_environment_has_fewer_than_a_step_asks(planned: Any) -> None:
    plan = planned(sampler="sparing:most=2", train={"limit": 2, "prompts_per_step": 4, "group_size": 2, "steps": 5})
    assert [one.index for one in Prompts(plan).of_step(1)] == [0, 1, 0, 1]
