"""Whole runs with the real vLLM: every way learns, one step old too, and a killed run goes on."""

from __future__ import annotations

import itertools
import json
import shutil
import statistics
from pathlib import Path
from typing import Any

import pytest
from engine_bench import REAL_VLLM
from small_run import run_of

pytestmark = REAL_VLLM

STEPS = 10


def learn(out: Path, **settings: Any) -> list[dict[str, Any]]:
    from grpo.core.record.run_dir import RunDir, read_metrics

    tree = {
        "env": "gsm8k",
        "rewards": ["proximity"],
        "out": str(out),
        "train": {"steps": STEPS, "lr": 1e-4},
        "evaluation": {"size": 0},
        **settings,
    }
    run_of(tree)
    return read_metrics(RunDir(out))


@pytest.mark.nightly
def test_every_way_learns_alike(tmp_path: Path) -> None:
    """(hf | vllm) x (full | LoRA) on the embedded task, one seed."""
    ends: dict[str, float] = {}
    for backend, lora in itertools.product(("hf", "vllm"), (False, True)):
        rows = learn(
            tmp_path / f"{backend}-{lora}",
            train={"steps": STEPS, "lr": 1e-3 if lora else 1e-4},
            rollout={"backend": backend},
            lora={"enabled": lora},
        )
        rewards = [row["reward"] for row in rows]
        ends[f"{backend}, {'LoRA' if lora else 'full'}"] = end = statistics.fmean(rewards[-3:])
        assert end > rewards[0] + 0.15, f"{backend}, LoRA {lora}: {rewards}"
        assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-3
        assert not any("sync/steps_again" in row or "sync/repeated" in row for row in rows)
        if backend == "vllm":
            # Truncated importance sampling is on by itself.
            assert json.loads((tmp_path / f"vllm-{lora}" / "config.json").read_text())["loss"]["rollout_correction"]
            assert all(row["sync/bytes"] > 0 and row["sync/spot_difference"] < 1e-3 for row in rows)
    assert max(ends.values()) - min(ends.values()) < 0.15, ends


def test_a_policy_learns_from_rollouts_that_are_one_step_old_and_the_engine_evaluates_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grpo.core.rollout.engine.vllm import VllmEngine

    greedy: list[int] = []
    generate = VllmEngine.generate

    def counting(self: Any, prompts: Any, params: Any, on_done: Any = None) -> Any:
        greedy.extend([len(prompts)] * (params.temperature == 0.0))
        return generate(self, prompts, params, on_done)

    monkeypatch.setattr(VllmEngine, "generate", counting)
    rows = learn(
        tmp_path / "run",
        train={"steps": STEPS, "lr": 1e-3},
        rollout={"backend": "vllm", "ahead": 1},
        lora={"enabled": True},
        evaluation={"size": 24, "every": 5},
    )
    held_out = [row["held_out/accuracy"] for row in rows if "held_out/accuracy" in row]
    assert greedy == [24, 24, 24]
    assert len(held_out) == 3
    assert held_out[-1] > held_out[0]
    rows = rows[1:]  # the first one is of the evaluation before training
    rewards = [row["reward"] for row in rows]
    assert statistics.fmean(rewards[-3:]) > rewards[0] + 0.15, rewards
    assert [row["sampling/staleness"] for row in rows] == [0.0] + [1.0] * (STEPS - 1)
    # The proof holds the rollouts against the policy that sampled them, the correction against the one that trains.
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-3
    assert max(abs(row["sampling/importance_sampling_ratio/mean"] - 1.0) for row in rows) > 1e-4
    assert json.loads((tmp_path / "run" / "config.json").read_text())["loss"]["rollout_correction"] == "token_truncate"
    assert all(row["sync/spot_difference"] < 1e-3 for row in rows[:-1])
    assert not any("sync/batches_again" in row or "sync/repeated" in row for row in rows)


@pytest.mark.nightly
def test_rollouts_are_continued_by_later_policies_and_every_part_is_proven(tmp_path: Path) -> None:
    from grpo.core.record.run_dir import RunDir, read_rollouts

    rows = learn(
        tmp_path / "run",
        train={"steps": STEPS, "lr": 1e-3},
        rollout={"backend": "vllm", "partial": 8},
        lora={"enabled": True},
        evaluation={"size": 60, "every": STEPS},
    )
    before, after = (row["held_out/accuracy"] for row in rows if "held_out/accuracy" in row)
    assert after > before + 0.1, (before, after)
    rows = rows[1:]  # the first one is of the evaluation before training
    assert max(row["sampling/staleness"] for row in rows) >= 1.0
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-3
    assert not any("sync/batches_again" in row or "sync/repeated" in row for row in rows)
    every = [row for step in range(1, STEPS + 1) for row in read_rollouts(RunDir(tmp_path / "run"), step)]
    assert max(len(row["sampled_by"]) for row in every) > 1
    assert all(sum(tokens for _, tokens in row["sampled_by"]) == row["tokens"] for row in every)


def test_several_environments_one_batch_ahead_and_a_killed_run_goes_on_with_the_batch_that_was_ready(
    tmp_path: Path,
) -> None:
    """Rollouts of one turn and of several in each batch, an adapter, and the engine started anew in between."""
    from grpo.core.display.progress import Silent
    from grpo.core.record.run_dir import RunDir, read_metrics, read_rollouts
    from grpo.core.run.job import resume
    from grpo.plugins.host import Host

    def trained(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[list[Any]]]:
        kept = [{k: v for k, v in row.items() if "seconds" not in k and "time/" not in k} for row in rows]
        for row in kept:
            row.pop("sync/bytes", None)  # an engine that starts anew gets the base along with the adapter
            row.pop("sync/spot_difference", None)  # rounding of some 1e-6, whose last bit depends on where tensors lie
        sampled = [[row["completion"] for row in read_rollouts(run, step)] for step in (1, 2, 3, 4)]
        return kept, sampled

    run = RunDir(tmp_path / "run")
    rows = learn(
        run.path,
        env=["gsm8k:weight=0.5", "guess:weight=0.5"],
        rewards=[],
        train={"steps": 4, "lr": 1e-2, "prompts_per_step": 4, "group_size": 4},
        rollout={
            "backend": "vllm",
            "ahead": 1,
            "max_completion_length": 24,
            "max_turns": 3,
            "lora_sync": "adapter",
        },
        lora={"enabled": True},
        output={"save_every": 2},
    )
    assert [row["sampling/staleness"] for row in rows] == [0.0, 1.0, 1.0, 1.0]
    assert max(row["env/guess/turns"] for row in rows) > 1.0
    assert all(row["env/gsm8k/turns"] == 1.0 and row["env/gsm8k/share"] == 0.5 for row in rows)
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-3
    assert not any("sync/batches_again" in row or "sync/repeated" in row for row in rows)
    whole = trained(rows)

    # As kill -9 leaves it after the checkpoint of step 2.
    shutil.rmtree(run.path / "model")
    shutil.rmtree(run.checkpoints / "checkpoint-4")
    resume(run.path, Host.discover(), Silent())
    assert trained(read_metrics(run)) == whole
