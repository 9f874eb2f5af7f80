"""One batch ahead: sampled while the policy trains, one step old, proven, and never lost with a run that is killed."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo.core.rollout.hf.sampler import HfRollouts
from grpo.core.rollout.sync.fault import SyncFault
from grpo.core.rollout.types import OnDone, Sampled, SamplingParams
from grpo.plugins.errors import RunError, UsageError

pytestmark = pytest.mark.slow
STEPS = 4
PATCHY = """
from grpo import reward

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def patchy(completion: str) -> float:
    if sum(map(ord, completion)) % 10 == 0:
        raise ValueError("not this one")
    return float(sum(map(ord, completion)) % 10 == 1)
"""


class Copied(HfRollouts):
    """An engine with weights of its own, as vLLM has: those of the last sync that arrived.

    Args:
        arrives: says of each sync, counted from 0, whether its weights arrive.
    """

    exact = False

    def __init__(self, arrives: Callable[[int, bool], bool] = lambda sync, again: True) -> None:
        super().__init__()
        self._arrives = arrives
        self._copy: Any = None
        self.syncs: list[bool] = []
        self.threads: list[str] = []
        self.before: Callable[[], None] = lambda: None

    def sync(self, model: Any, *, again: bool = False) -> Mapping[str, float]:
        if self._copy is None:
            with torch.random.fork_rng():
                self._copy = type(model)(model.config)
        if self._arrives(len(self.syncs), again):
            self._copy.load_state_dict(model.state_dict())
        self.syncs.append(again)
        return super().sync(self._copy)

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, on_done: OnDone | None = None
    ) -> list[Sampled]:
        self.threads.append(threading.current_thread().name)
        self.before()
        return super().generate(prompts, params, on_done)

    def differing(self, model: Any) -> list[str]:
        mine = dict(self._copy.named_parameters())
        return [name for name, p in model.named_parameters() if not mine[name].equal(p)]


Job = Callable[..., Path]


@pytest.fixture(scope="module")
def job(tiny_model: Path, vowels: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Trains with an engine of the test's, and returns the run directory."""
    from grpo.core.config.schema import parse_config
    from grpo.core.planning import rollout as planning
    from grpo.core.rollout import open as opening
    from grpo.core.run.job import resume, start
    from grpo.core.run.progress import Silent
    from grpo.plugins.host import Host

    patch = pytest.MonkeyPatch()
    patch.setattr(planning, "refuse_missing_vllm", lambda: None)

    def run(engine: Any, resumed: Path | None = None, **settings: Any) -> Path:
        patch.setattr(opening, "open_rollouts", lambda plan, model, *_: engine)
        if resumed is not None:
            resume(resumed, Host.discover(), Silent())
            return resumed
        out = tmp_path_factory.mktemp("overlap") / "run"
        tree = {
            "env": "gsm8k:size=40",
            "dataset": "embedded",
            "model": str(tiny_model),
            "rewards": [vowels],
            "out": str(out),
            "train": {
                "steps": STEPS,
                "prompts_per_step": 3,
                "group_size": 4,
                "micro_batch_size": 4,
                "lr": 1e-2,
                "lr_schedule": "constant",
            },
            "rollout": {"backend": "vllm", "max_completion_length": 12, "overlap": True},
            "evaluation": {"size": 0},
            "output": {"save_every": 2},
        }
        for key, value in settings.items():
            tree[key] = {**tree.get(key, {}), **value} if isinstance(value, dict) else value  # type: ignore[dict-item]
        start(parse_config(tree), Host.discover(), Silent())
        return out

    yield run
    patch.undo()


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


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def seconds(metric: str) -> bool:
    return metric.startswith("time/")


def rollouts(run: Path, column: str, *, wasted: bool = False) -> list[list[Any]]:
    from grpo.core.record.run_dir import RunDir, read_rollouts

    steps = range(1, STEPS + 1)
    return [[row[column] for row in read_rollouts(RunDir(run), step, wasted=wasted)] for step in steps]


def test_the_next_batch_is_sampled_beside_training_and_is_one_step_old(held: Held) -> None:
    rows = metrics(held.path)
    assert held.beside == [True] * (STEPS - 1), "a batch was sampled while nothing trained"
    assert held.threads == ["MainThread"] + ["grpo-ahead"] * (STEPS - 1)
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
        assert {key: value for key, value in row.items() if not seconds(key)} == {
            key: value for key, value in other.items() if not seconds(key)
        }


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
        assert {key: value for key, value in row.items() if not seconds(key)} == {
            key: value for key, value in other.items() if not seconds(key)
        }


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
    assert engine.threads == ["MainThread", "grpo-ahead"] * 3
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-4
    assert [row["sampling/staleness"] for row in rows] == [0.0, 1.0, 1.0, 1.0]


def test_what_stays_wrong_stops_the_run_naming_the_parameters(job: Job) -> None:
    with pytest.raises(RunError, match=r"after a full sync and new completions .*these parameters differ: .*weight"):
        job(Copied(lambda sync, again: sync < 1))
    assert not any(thread.name == "grpo-ahead" for thread in threading.enumerate())


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
        ({"rollout": {"backend": "hf"}}, "samples with the very weights that train"),
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

    from grpo.core.train.ahead import refuse_unfit_policy

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
