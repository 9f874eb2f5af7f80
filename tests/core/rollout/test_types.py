"""What every rollout backend refuses before anything is sampled, and what it makes of equal prompts."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import LlamaConfig

from grpo.core.rollout.types import SamplingParams, context_length, refuse_unfit, refuse_unsafe_rope, runs
from grpo.plugins.errors import UsageError


def test_equal_neighbours_are_one_prompt() -> None:
    assert runs([[1, 2], (1, 2), [3], [1, 2]]) == ([[1, 2], [3], [1, 2]], [2, 1, 1])
    assert runs([]) == ([], [])


def test_what_does_not_fit_is_refused_with_what_to_lower() -> None:
    params = SamplingParams(max_tokens=4, eos_ids=(), pad_id=0)
    refuse_unfit([[5], [5] * 12], params, 16)
    refuse_unfit([[5] * 100], params, None)
    with pytest.raises(UsageError, match=r"13 tokens and 4 new ones .* context of 16.*max_completion_length to 3"):
        refuse_unfit([[5], [5] * 13], params, 16)
    with pytest.raises(UsageError, match="an empty prompt"):
        refuse_unfit([[5], []], params, None)


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
        {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "rope_theta": 10000.0},
    ],
    ids=["dynamic", "longrope"],
)
def test_rope_that_depends_on_the_longest_row_is_refused(rope: dict[str, Any]) -> None:
    config = LlamaConfig()
    refuse_unsafe_rope(config)
    config.rope_parameters = rope
    with pytest.raises(UsageError, match=f"'{rope['rope_type']}' RoPE scaling"):
        refuse_unsafe_rope(config)
    config.rope_parameters = {"full_attention": rope, "sliding_attention": {"rope_type": "default"}}
    with pytest.raises(UsageError, match=f"'{rope['rope_type']}' RoPE scaling"):
        refuse_unsafe_rope(config)


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "default", "rope_theta": 10000.0},
        {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
        {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 256,
        },
        {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 256},
    ],
    ids=lambda rope: rope["rope_type"],
)
def test_rope_that_is_the_same_for_every_row_is_not_refused(rope: dict[str, Any]) -> None:
    config = LlamaConfig(max_position_embeddings=2048, rope_parameters=rope)
    refuse_unsafe_rope(config)
    assert context_length(config) == 2048
