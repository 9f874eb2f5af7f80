"""Whole runs with the real vLLM: every way learns, long contexts agree, and the order of imports does not matter."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_bench import REAL_VLLM

pytestmark = REAL_VLLM

STEPS = 10


def learn(out: Path, **settings: Any) -> list[dict[str, Any]]:
    from grpo.core.config import parse_config
    from grpo.core.progress import Silent
    from grpo.core.record import RunDir, read_metrics
    from grpo.core.run import start
    from grpo.plugins.host import Host

    tree = {
        "env": "gsm8k",
        "rewards": ["proximity"],
        "out": str(out),
        "train": {"steps": STEPS, "lr": 1e-4},
        "evaluation": {"size": 0},
        **settings,
    }
    start(parse_config(tree), Host.discover(), Silent())
    return read_metrics(RunDir(out))


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
    from grpo.core.rollout_vllm import VllmEngine

    greedy: list[int] = []
    generate = VllmEngine.generate

    def counting(self: Any, prompts: Any, params: Any, on_done: Any = None) -> Any:
        greedy.extend([len(prompts)] * (params.temperature == 0.0))
        return generate(self, prompts, params, on_done)

    monkeypatch.setattr(VllmEngine, "generate", counting)
    rows = learn(
        tmp_path / "run",
        train={"steps": STEPS, "lr": 1e-3},
        rollout={"backend": "vllm", "overlap": True},
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


def test_several_environments_one_batch_ahead_and_a_killed_run_goes_on_with_the_batch_that_was_ready(
    tmp_path: Path,
) -> None:
    """Rollouts of one turn and of several in each batch, an adapter, and the engine started anew in between."""
    from grpo.core.progress import Silent
    from grpo.core.record import RunDir, read_metrics, read_rollouts
    from grpo.core.run import resume
    from grpo.plugins.host import Host

    def trained(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[list[Any]]]:
        kept = [{k: v for k, v in row.items() if "seconds" not in k and "time/" not in k} for row in rows]
        for row in kept:
            row.pop("sync/bytes", None)  # an engine that starts anew gets the base along with the adapter
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
            "overlap": True,
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


def long_model(folder: Path, rope: dict[str, Any], like: Path) -> Any:
    from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config

    config = Qwen2Config(
        vocab_size=400,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=96,
        max_position_embeddings=16_640,
        tie_word_embeddings=False,
        initializer_range=0.1,
        rope_parameters={"rope_theta": 10_000.0, **rope},
        eos_token_id=2,
        pad_token_id=0,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(like).save_pretrained(folder)
    return model


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "default"},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4160},
    ],
    ids=["plain", "yarn"],
)
def test_long_contexts_agree_left_padded_too(rope: dict[str, Any], tiny_model: Path, tmp_path: Path) -> None:
    from grpo.core.rollout import SamplingParams
    from grpo.core.rollout_engine import EngineRollouts
    from grpo.core.rollout_hf import sample
    from grpo.core.rollout_vllm import EngineSettings, VllmEngine

    model = long_model(tmp_path / "model", rope, tiny_model)
    generator = torch.Generator().manual_seed(2)
    prompts = [torch.randint(3, 400, (n,), generator=generator).tolist() for n in (60, 1500, 6000, 16_000)]
    params = SamplingParams(max_tokens=6, eos_ids=(), pad_id=0)
    rollouts = EngineRollouts(
        VllmEngine(EngineSettings(str(tmp_path / "model"), "float32", 16_640, True, 0.3)), tolerance=2e-4
    )
    try:
        rollouts.sync(model)
        from_vllm = rollouts.generate(prompts, params)
    finally:
        rollouts.close()
    from_hf = sample(model, prompts, params)  # one left-padded batch
    for prompt, *both in zip(prompts, from_vllm, from_hf, strict=True):
        for sampled in both:
            ids = torch.tensor([prompt + list(sampled.token_ids)])
            with torch.no_grad():
                logits = model(ids, logits_to_keep=len(sampled.token_ids) + 1).logits[0, :-1]
            alone = logits.log_softmax(-1).gather(-1, ids[0, len(prompt) :, None])[:, 0]
            apart = (alone - torch.tensor(sampled.logprobs)).abs().max().item()
            assert apart < 2e-4, (len(prompt), apart)


IMPORTED = ["torch", "vllm", "transformers", "trl", "peft"]


@pytest.mark.parametrize("order", [IMPORTED, IMPORTED[::-1]], ids=",".join)
def test_nothing_depends_on_what_is_imported_first(order: list[str], tiny_model: Path) -> None:
    program = f"""
import warnings; warnings.simplefilter("ignore")
for name in {order!r}:
    __import__(name)
import torch
from transformers import AutoModelForCausalLM
from grpo.core.rollout import SamplingParams
from grpo.core.rollout_engine import EngineRollouts
from grpo.core.rollout_vllm import EngineSettings, VllmEngine
model = AutoModelForCausalLM.from_pretrained({str(tiny_model)!r}, dtype=torch.float32)
rollouts = EngineRollouts(VllmEngine(EngineSettings({str(tiny_model)!r}, "float32", 256, True, 0.3)), tolerance=2e-4)
rollouts.sync(model)
torch.manual_seed(0)
(sampled,) = rollouts.generate([[5, 6, 7]], SamplingParams(max_tokens=8, eos_ids=(), pad_id=0))
print("sampled", sampled.token_ids)
rollouts.close()
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "sampled (" in done.stdout
