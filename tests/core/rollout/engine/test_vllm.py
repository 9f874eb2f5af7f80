"""The engine by itself: long contexts agree with transformers, and the order of imports does not matter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_bench import REAL_VLLM
from patience import RUN

pytestmark = REAL_VLLM


def long_model(folder: Path, context: int, rope: dict[str, Any], like: Path) -> Any:
    from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config

    config = Qwen2Config(
        vocab_size=400,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=96,
        max_position_embeddings=context,
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
    ("context", "rope"),
    [
        pytest.param(16_640, {"rope_type": "default"}, marks=pytest.mark.nightly),
        (8_320, {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2080}),
    ],
    ids=["plain", "yarn"],
)
def test_long_contexts_agree_left_padded_too(
    context: int, rope: dict[str, Any], tiny_model: Path, tmp_path: Path
) -> None:
    from grpo.core.rollout.engine.proven import EngineRollouts
    from grpo.core.rollout.engine.vllm import EngineSettings, VllmEngine
    from grpo.core.rollout.hf.sampler import sample
    from grpo.core.rollout.types import SamplingParams

    model = long_model(tmp_path / "model", context, rope, tiny_model)
    generator = torch.Generator().manual_seed(2)
    prompts = [torch.randint(3, 400, (n,), generator=generator).tolist() for n in (60, 3000, context - 128)]
    params = SamplingParams(max_tokens=6, eos_ids=(), pad_id=0)
    rollouts = EngineRollouts(
        VllmEngine(EngineSettings(str(tmp_path / "model"), "float32", context, True, 0.3)), tolerance=2e-4
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


@pytest.mark.nightly
@pytest.mark.parametrize("order", [IMPORTED, IMPORTED[::-1]], ids=",".join)
def test_nothing_depends_on_what_is_imported_first(order: list[str], tiny_model: Path) -> None:
    program = f"""
import warnings; warnings.simplefilter("ignore")
for name in {order!r}:
    __import__(name)
import torch
from transformers import AutoModelForCausalLM
from grpo.core.rollout.types import SamplingParams
from grpo.core.rollout.engine.proven import EngineRollouts
from grpo.core.rollout.engine.vllm import EngineSettings, VllmEngine
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
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False, timeout=RUN
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "sampled (" in done.stdout
