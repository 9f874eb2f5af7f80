"""Partial rollouts: continued from step to step, each token by a known and proven policy, and none lost in a kill."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ahead_runs import Copied, Job, jobs, metrics, untimed

from grpo.core.record.run_dir import RunDir, read_rollouts
from grpo.core.rollout.hf.sampler import HfRollouts
from grpo.core.rollout.sync.fault import SyncFault
from grpo.plugins.errors import RunError, UsageError

pytestmark = pytest.mark.slow
STEPS, PART = 6, 12
SYNC, CALL = 5, 5  # of one of the first steps
SETTINGS: dict[str, Any] = {
    "model": None,  # the embedded one, whose answers have many lengths
    "rewards": ["proximity"],
    "train": {"steps": STEPS, "lr": 1e-4},
    "rollout": {"ahead": 0, "partial": PART, "max_completion_length": 60},
}


@pytest.fixture(scope="module")
def job(tiny_model: Path, vowels: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Trains with an engine of the test's, and returns the run directory."""
    with jobs(tiny_model, vowels, tmp_path_factory) as job:

        def partial(engine: Any, resumed: Path | None = None, **settings: Any) -> Path:
            merged = {name: {**value, **settings.pop(name, {})} for name, value in SETTINGS.items() if name in SECTIONS}
            return job(engine, resumed, **{**SETTINGS, **merged, **settings})

        yield partial


SECTIONS = ("train", "rollout")


@pytest.fixture(scope="module")
def whole(job: Job) -> Path:
    return job(Copied())


def recorded(run: Path) -> list[list[dict[str, Any]]]:
    return [read_rollouts(RunDir(run), step) for step in range(1, STEPS + 1)]


def killed_after_four(run: Path) -> Path:
    """Returns the run as kill -9 leaves it after the checkpoint of step 4."""
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "checkpoints" / "checkpoint-6")
    return run


def test_groups_train_when_they_are_whole_and_every_token_has_a_proven_policy(whole: Path) -> None:
    rows, steps = metrics(whole), recorded(whole)
    assert {len(step) for step in steps} <= {4, 8, 12}, "groups stay whole"
    ages = [step - by for step, rows in enumerate(steps, 1) for row in rows for by, _ in row["sampled_by"]]
    assert max(ages) >= 2
    assert min(ages) == 0
    several = [row for step in steps for row in step if len(row["sampled_by"]) > 2]
    assert several, "nothing was continued twice"
    for row in several:
        parts = row["sampled_by"]
        assert parts == sorted(parts)
        assert sum(tokens for _, tokens in parts) == row["tokens"] == len(row["token_ids"]) == len(row["logprobs"])
        assert not any(tokens % PART for _, tokens in parts[:-1])
    assert [row["sampling/staleness"] for row in rows] == [
        max(step - by for row in rows for by, _ in row["sampled_by"]) for step, rows in enumerate(steps, 1)
    ]
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-4
    ratios = [row["sampling/importance_sampling_ratio/mean"] for row in rows]
    assert ratios[0] == pytest.approx(1.0, abs=1e-5)
    assert any(abs(ratio - 1.0) > 1e-5 for ratio in ratios[1:]), "nothing was corrected"


def test_prompts_are_asked_once_in_their_order_and_what_is_left_at_the_end_is_said(whole: Path) -> None:
    from grpo.core.config.schema import parse_config
    from grpo.core.planning.decide import make_plan
    from grpo.core.record.run_dir import read_json
    from grpo.core.train.sampling.prompts import Prompts
    from grpo.plugins.host import Host

    tree = read_json(whole / "config.json")
    assert tree is not None
    prompts = Prompts(make_plan(parse_config(tree), Host.discover(), fresh=False, served=False))
    asked = [
        [message["content"] for message in one.prompt] for step in range(1, STEPS + 1) for one in prompts.of_step(step)
    ]
    trained = [
        [message["content"] for message in json.loads(row["prompt"])] for step in recorded(whole) for row in step[::4]
    ]
    assert all(one in asked for one in trained)
    assert len({str(one) for one in trained}) == len(trained)
    assert len(asked) - len(trained) >= metrics(whole)[-1]["sampling/carried"] / 4


@pytest.mark.parametrize("sampler", [Copied, pytest.param(HfRollouts, marks=pytest.mark.nightly)])
def test_a_run_that_was_killed_goes_on_with_what_was_under_way(job: Job, whole: Path, sampler: Any) -> None:
    backend = {"rollout": {"backend": "hf"}} if sampler is HfRollouts else {}
    straight = whole if sampler is Copied else job(sampler(), **backend)
    run = killed_after_four(job(sampler(), **backend))
    assert (run / "checkpoints" / "checkpoint-4" / "partial.json").is_file()
    job(sampler(), resumed=run)
    assert recorded(run) == recorded(straight)
    for row, other in zip(metrics(run), metrics(straight), strict=True):
        assert untimed(row) == untimed(other)


@pytest.mark.nightly
def test_several_turns_are_left_between_turns_and_a_killed_run_goes_on_alike(job: Job) -> None:
    settings: dict[str, Any] = {
        "env": "guess",
        "rewards": ["environment"],
        "dataset": None,
        "train": {"warmup_steps": 0},
        "rollout": {"backend": "hf", "partial": 14, "max_completion_length": 24},
    }
    straight, run = job(HfRollouts(), **settings), killed_after_four(job(HfRollouts(), **settings))
    rows = [row for step in recorded(straight) for row in step]
    assert any(len(row["sampled_by"]) > 1 for row in rows), "nothing was continued"
    job(HfRollouts(), resumed=run)
    assert recorded(run) == recorded(straight)


@pytest.mark.nightly
def test_a_part_of_other_weights_or_of_an_engine_that_lost_them_is_sampled_again(job: Job) -> None:
    late, lost = Copied(lambda sync, again: again or sync != SYNC), Copied()

    def restarted() -> None:
        if len(lost.threads) == CALL:
            raise SyncFault("the engine was restarted while it sampled", [])

    lost.before = restarted
    for engine, said in ((late, "sync/batches_again"), (lost, "sync/repeated")):
        rows = metrics(job(engine))
        assert sum(row.get(said, 0.0) for row in rows) == 1.0, said
        assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-4
        assert engine.syncs.count(True) == 1
        assert sum(row["sampling/carried"] for row in rows) > 0


def test_what_stays_wrong_stops_the_run(job: Job) -> None:
    with pytest.raises(RunError, match=r"after a full sync and new completions .*these parameters differ: .*weight"):
        job(Copied(lambda sync, again: sync < 1))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rollout": {"ahead": 1}}, "by several"),
        ({"rollout": {"refill": 1}}, "within its step"),
        ({"rollout": {"dynamic": 1.0}}, "within its step"),
        ({"loss": {"num_iterations": 2}}, "older than they have to be"),
        ({"loss": {"rollout_correction": "none"}}, "need to be corrected"),
        ({"train": {"head": "trl"}}, "only our head"),
        ({"rollout": {"partial": 60}}, "no rollout samples more than 60 tokens"),
    ],
)
def test_where_it_would_be_wrong_or_idle_it_is_refused_before_anything_loads(
    job: Job, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        job(Copied(), **settings)
