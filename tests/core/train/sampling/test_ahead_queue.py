"""Several batches ahead: each from a known version of the policy, proven, never too old, never lost."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ahead_runs import Copied, Job, jobs, metrics, rollouts, untimed

from grpo.core.rollout.sync.fault import SyncFault
from grpo.plugins.errors import RunError, UsageError

pytestmark = pytest.mark.slow
TWO = {"backend": "vllm-server", "ahead": 2, "max_completion_length": 12}


@pytest.fixture(scope="module")
def job(tiny_model: Path, vowels: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Trains with an engine of the test's, and returns the run directory."""
    with jobs(tiny_model, vowels, tmp_path_factory) as job:
        yield job


@pytest.fixture(scope="module")
def whole(job: Job) -> Path:
    return job(Copied(), rollout=TWO)


def test_rollouts_are_as_old_as_the_queue_is_long_and_each_batch_is_proven(whole: Path) -> None:
    rows = metrics(whole)
    assert [row["sampling/staleness"] for row in rows] == [0.0, 1.0, 2.0, 2.0]
    # Compared with the version that sampled; the policy that trains is another one by then, and is corrected for.
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-4
    ratios = [row["sampling/importance_sampling_ratio/mean"] for row in rows]
    assert ratios[0] == pytest.approx(1.0, abs=1e-5)
    assert all(abs(ratio - 1.0) > 1e-4 for ratio in ratios[2:]), "nothing was corrected"
    assert not any(row.get("sync/batches_again") for row in rows)


@pytest.mark.parametrize("slow", ["the engine", "the trainer"])
def test_who_is_slow_changes_nothing_but_the_time(whole: Path, job: Job, slow: str) -> None:
    from grpo.core.train.trainer import PolicyTrainer

    engine = Copied()
    original = PolicyTrainer.compute_loss

    def computing(self: Any, *arguments: Any, **options: Any) -> Any:
        time.sleep(0.4 if slow == "the trainer" else 0.0)
        return original(self, *arguments, **options)

    if slow == "the engine":
        engine.before = lambda: time.sleep(0.7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PolicyTrainer, "compute_loss", computing)
        run = job(engine, rollout=TWO)
    for column in ("prompt", "completion", "advantage"):
        assert rollouts(run, column) == rollouts(whole, column)
    assert [untimed(row) for row in metrics(run)] == [untimed(row) for row in metrics(whole)]


@pytest.mark.parametrize("sampler", ["", "curriculum"])
def test_a_run_that_was_killed_goes_on_with_all_batches_that_were_queued(job: Job, sampler: str) -> None:
    settings = {"output": {"save_every": 3}, "rollout": TWO, "train": {"steps": 6}}
    settings |= {"sampler": sampler} if sampler else {}
    whole, run = job(Copied(), **settings), job(Copied(), **settings)
    # As kill -9 leaves it after the checkpoint of step 3, with others trained and under way.
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "checkpoints" / "checkpoint-6")
    assert {file.name for file in (run / "checkpoints" / "checkpoint-3").glob("ahead*")} == {
        "ahead.json",
        "ahead.2.json",
    }
    engine = Copied()
    job(engine, resumed=run)
    assert len(engine.threads) == 1, "of steps 4, 5 and 6 only the last had not been sampled"
    for column in ("prompt", "completion", "advantage", "finish_reason"):
        assert rollouts(run, column) == rollouts(whole, column)
    assert [untimed(row) for row in metrics(run)] == [untimed(row) for row in metrics(whole)]
    assert weights(run) == weights(whole)


def weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def test_a_batch_of_other_weights_or_of_an_engine_that_lost_them_is_sampled_again(whole: Path, job: Job) -> None:
    engine = Copied(lambda sync, again: again or sync != 4)

    def lost() -> None:
        if len(engine.threads) == 2:
            raise SyncFault("the engine was restarted while it sampled", [])

    engine.before = lost
    run = job(engine, rollout=TWO)
    rows = metrics(run)
    assert sum(row.get("sync/repeated", 0.0) for row in rows) == 1
    assert sum(row.get("sync/batches_again", 0.0) for row in rows) == 1
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-4
    assert rollouts(run, "completion") == rollouts(whole, "completion")


def test_what_stays_wrong_or_breaks_ends_the_run(job: Job) -> None:
    with pytest.raises(RunError, match=r"after a full sync and new completions .*these parameters differ: .*weight"):
        job(Copied(lambda sync, again: sync < 3), rollout=TWO)
    engine = Copied()

    def broken() -> None:
        if len(engine.threads) == 3:
            raise RunError("the engine ran out of memory")

    engine.before = broken
    with pytest.raises(RunError, match="the engine ran out of memory"):
        job(engine, rollout=TWO)
    assert not any(thread.name.startswith("grpo-ahead") for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rollout": {**TWO, "backend": "vllm"}}, "--ahead 2 with rollout.backend='vllm': .*use vllm-server"),
        ({"rollout": {**TWO, "refill": 1}}, "--ahead 2 with rollout.refill"),
        ({"rollout": {**TWO, "dynamic": 1.0}}, "--ahead 2 with rollout.dynamic"),
    ],
)
def test_what_it_cannot_do_is_refused(job: Job, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        job(Copied(), **settings)
