"""One batch ahead: sampled while the policy trains, one step old, proven, and never lost with a run that is killed."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from ahead_runs import STEPS, Copied, Job, jobs, metrics, rollouts, untimed

from grpo.core.rollout.sync.fault import SyncFault
from grpo.plugins.errors import RunError, UsageError

pytestmark = pytest.mark.slow
PATCHY = """
from grpo import reward

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def patchy(completion: str) -> float:
    if sum(map(ord, completion)) % 10 == 0:
        raise ValueError("not this one")
    return float(sum(map(ord, completion)) % 10 == 1)
"""


@pytest.fixture(scope="module")
def job(tiny_model: Path, vowels: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Trains with an engine of the test's, and returns the run directory."""
    with jobs(tiny_model, vowels, tmp_path_factory) as job:
        yield job


@dataclass(frozen=True)
class Held:
    """A run whose engine sampled each batch only once a forward pass had begun beside it."""

    path: Path
    beside: list[bool]
    threads: list[str]


@pytest.fixture(scope="module")
def held(job: Job) -> Held:
    from grpo.core.train.trainer import PolicyTrainer

    engine = Copied()
    training = threading.Event()
    beside: list[bool] = []
    original = PolicyTrainer.compute_loss

    def computing(self: Any, *arguments: Any, **options: Any) -> Any:
        loss = original(self, *arguments, **options)
        training.set()
        return loss

    def wait_for_training() -> None:
        if threading.current_thread() is not threading.main_thread():
            training.clear()
            beside.append(training.wait(60))

    engine.before = wait_for_training
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PolicyTrainer, "compute_loss", computing)
        path = job(engine)
    return Held(path, beside, engine.threads)


def test_the_next_batch_is_sampled_beside_training_and_is_one_step_old(held: Held) -> None:
    rows = metrics(held.path)
    assert held.beside == [True] * (STEPS - 1), "a batch was sampled while nothing trained"
    assert held.threads == ["MainThread"] + ["grpo-ahead_0"] * (STEPS - 1)
    assert [row["sampling/staleness"] for row in rows] == [0.0, 1.0, 1.0, 1.0]
    # The proof compares with the policy that sampled; the policy that trains is another one by then.
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-4
    ratios = [row["sampling/importance_sampling_ratio/mean"] for row in rows]
    assert ratios[0] == pytest.approx(1.0, abs=1e-5)
    assert all(abs(ratio - 1.0) > 1e-4 for ratio in ratios[2:]), "nothing was corrected"
    assert not any("sync/batches_again" in row for row in rows)


def test_a_run_is_repeatable_and_one_that_was_killed_goes_on_with_the_batch_that_was_ready(
    held: Held, job: Job
) -> None:
    run = job(Copied())
    assert rollouts(run, "completion") == rollouts(held.path, "completion")
    # As kill -9 leaves it after the checkpoint of step 2, with the third batch trained and the fourth under way.
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "checkpoints" / "checkpoint-4")
    engine = Copied()
    job(engine, resumed=run)
    assert len(engine.threads) == 1, "the third batch was sampled anew"
    for column in ("prompt", "completion", "advantage", "finish_reason"):
        assert rollouts(run, column) == rollouts(held.path, column)
    for row, other in zip(metrics(run), metrics(held.path), strict=True):
        assert untimed(row) == untimed(other)


@pytest.mark.nightly
def test_a_batch_that_was_filled_up_ahead_is_proven_whole_and_comes_back_from_a_checkpoint(
    job: Job, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(PATCHY)
    settings = {
        "rewards": [f"{tmp_path}/mine.py:patchy"],
        "rollout": {"refill": 2, "dynamic": 1.5},
        "failures": {"stop_share": 0.9},
    }
    whole, killed = job(Copied(), **settings), job(Copied(), **settings)
    rows = metrics(whole)
    assert [row["sampling/staleness"] for row in rows] == [0.0, 1.0, 1.0, 1.0]
    assert max(row["sampling/wasted"] for row in rows[1:]) > 0
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-4
    shutil.rmtree(killed / "model")
    shutil.rmtree(killed / "checkpoints" / "checkpoint-4")
    job(Copied(), resumed=killed)
    for column in ("prompt", "completion", "advantage", "finish_reason"):
        assert rollouts(killed, column) == rollouts(whole, column)
        assert rollouts(killed, column, wasted=True) == rollouts(whole, column, wasted=True)
    for row, other in zip(metrics(killed), rows, strict=True):
        assert untimed(row) == untimed(other)


@pytest.mark.core
def test_a_batch_of_other_weights_or_of_an_engine_that_lost_them_is_sampled_again_before_it_trains(
    job: Job,
) -> None:
    engine = Copied(lambda sync, again: again or sync != 3)  # the one for the batch of step 3

    def lost() -> None:
        if len(engine.threads) == 2:
            raise SyncFault("the engine was restarted while it sampled", [])

    engine.before = lost
    rows = metrics(job(engine))
    assert [row.get("sync/batches_again", 0.0) for row in rows] == [1.0, 1.0, 0.0, 0.0]
    assert engine.syncs == [False, False, True, False, True, False]
    assert engine.threads == ["MainThread", "grpo-ahead_0"] * 3
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-4
    assert [row["sampling/staleness"] for row in rows] == [0.0, 1.0, 1.0, 1.0]


def test_what_stays_wrong_stops_the_run_naming_the_parameters(job: Job) -> None:
    with pytest.raises(RunError, match=r"after a full sync and new completions .*these parameters differ: .*weight"):
        job(Copied(lambda sync, again: sync < 1))
    assert not any(thread.name.startswith("grpo-ahead") for thread in threading.enumerate())


def test_an_engine_that_breaks_beside_training_ends_the_run_with_its_own_words(job: Job) -> None:
    engine = Copied()

    def broken() -> None:
        if len(engine.threads) == 2:
            raise RunError("the engine ran out of memory")

    engine.before = broken
    with pytest.raises(RunError, match="the engine ran out of memory"):
        job(engine)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rollout": {"backend": "hf"}}, "samples with the weights that train"),
        ({"loss": {"num_iterations": 2}}, "several steps old"),
        ({"train": {"head": "trl"}}, "only our head"),
        ({"loss": {"rollout_correction": "none"}}, "need to be corrected"),
        ({"rollout": {"sleep": True}}, "while the policy trains"),
        ({"lora": {"enabled": True, "dropout": 0.1}}, "torch's generators"),
    ],
)
def test_where_it_would_be_wrong_it_is_refused_before_anything_loads(
    job: Job, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        job(Copied(), **settings)


def test_a_policy_with_dropout_is_refused(tiny_model: Path) -> None:
    from transformers import AutoModelForCausalLM

    from grpo.core.train.sampling.ahead import refuse_unfit_policy

    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    with pytest.raises(UsageError, match="mixture of experts"):
        refuse_unfit_policy(model, corrects=False)
    refuse_unfit_policy(model, corrects=True)
    model.config.attention_dropout = 0.1
    with pytest.raises(UsageError, match=r"attention_dropout \(0\.1\)"):
        refuse_unfit_policy(model, corrects=True)
    model.config.attention_dropout = 0.0
    model.model.layers[1].mlp.act_fn = torch.nn.Dropout(0.2)
    with pytest.raises(UsageError, match=r"act_fn \(0\.2\)"):
        refuse_unfit_policy(model, corrects=True)
