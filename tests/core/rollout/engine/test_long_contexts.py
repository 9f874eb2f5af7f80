"""A real chat model at long contexts: vLLM and the policy itself choose the same tokens, as probable to both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_bench import REAL_VLLM, base_model, rollouts_of

from grpo.core.rollout.hf.sampler import sample
from grpo.core.rollout.types import SamplingParams

pytestmark = [*REAL_VLLM, pytest.mark.real_model]

TOKENS = 16
APART = 2e-3  # nats: float32, 30 layers, sums over thousands of positions in another order
NATIVE = 8192
YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": NATIVE}


@contextmanager
def served(folder: Path, context: int) -> Iterator[Any]:
    from grpo.core.rollout.engine.vllm import EngineSettings, VllmEngine

    settings = EngineSettings(model=str(folder), dtype="float32", context=context, raw_logprobs=True, memory_share=0.3)
    rollouts = rollouts_of(VllmEngine(settings))
    try:
        yield rollouts
    finally:
        rollouts.close()


def prompt_of(folder: Path, length: int) -> list[int]:
    """A long text that asks for one of its sentences again: what the model answers depends on the beginning."""
    from grpo.core.policy.load import load_tokenizer

    names = ["Ann", "Bob", "Cleo", "Dan", "Eve"]
    lines = [f"{names[row % 5]} keeps {row * 7 % 100} red beads in box {row}." for row in range(length // 8)]
    tokenizer = load_tokenizer(str(folder))
    text = f"The password is 4711.\n{chr(10).join(lines)}"
    ask = "\nWhat is the password? The password is"
    ids, end = tokenizer(text)["input_ids"], tokenizer(ask)["input_ids"]
    assert len(ids) + len(end) > length
    return list(ids[: length - len(end)]) + list(end)


def compare(model: Any, rollouts: Any, prompt: list[int]) -> None:
    """Samples greedily on both sides; where they part, the two tokens have to be as good as each other."""
    params = SamplingParams(max_tokens=TOKENS, eos_ids=(), pad_id=0, temperature=0.0)
    (theirs,) = rollouts.generate([prompt], params)
    (ours,) = sample(model, [prompt], params)
    for place, (token, other) in enumerate(zip(ours.token_ids, theirs.token_ids, strict=True)):
        apart = abs(ours.logprobs[place] - theirs.logprobs[place])
        assert apart < APART, f"token {place} of {len(prompt)} is {apart} nats apart"
        if token != other:
            print(f"{len(prompt)} tokens: a tie at token {place}: {token} and {other}, {apart:.2g} nats apart")
            return


@pytest.mark.nightly
def test_it_answers_alike_at_1k_4k_and_8k(real_model: Path) -> None:
    model = base_model(real_model).eval()
    with served(real_model, NATIVE) as rollouts:
        rollouts.sync(model)
        for length in (1024, 4096, NATIVE - TOKENS):
            compare(model, rollouts, prompt_of(real_model, length))


@pytest.mark.nightly
def test_it_answers_alike_at_16k_with_yarn(real_model: Path, tmp_path: Path) -> None:
    for file in real_model.iterdir():
        (tmp_path / file.name).symlink_to(file)
    config = json.loads((real_model / "config.json").read_text())
    theta = config.get("rope_parameters", {}).get("rope_theta", config.get("rope_theta"))
    config |= {"rope_parameters": {**YARN, "rope_theta": theta}, "max_position_embeddings": 2 * NATIVE}
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = base_model(tmp_path).eval()
    assert model.config.rope_parameters["rope_type"] == "yarn"
    with served(tmp_path, 2 * NATIVE) as rollouts, torch.inference_mode():
        rollouts.sync(model)
        compare(model, rollouts, prompt_of(real_model, 2 * NATIVE - TOKENS))
