"""Families of models with other caches than attention's, tiny and with random weights: sampled as they compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from grpo.core.rollout.hf.sampler import sample
from grpo.core.rollout.hf.states import needs_equal_lengths
from grpo.core.rollout.types import Sampled, SamplingParams, refuse_miscomputed, refuse_no_decoder
from grpo.plugins.errors import UsageError

pytestmark = pytest.mark.slow

TINY: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 64,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
MAMBA = {"mamba_d_state": 8, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_chunk_size": 4}
HYBRID = ["mamba", "full_attention"] * 2
FAMILIES: dict[str, dict[str, Any]] = {
    "mamba": {"state_size": 8, "time_step_rank": 4},
    "mamba2": {"state_size": 8, "num_heads": 8, "n_groups": 1, "chunk_size": 4},
    "falcon_mamba": {"state_size": 8, "time_step_rank": 4},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2, "num_dense_layers": 1},
    "qwen3_next": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "qwen3_5_text": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 8, "mamba_dt_rank": 4},
    "bamba": {**MAMBA, "attn_layer_indices": [1, 3]},
    "falcon_h1": {**MAMBA, "mamba_d_ssm": 64},
    "granitemoehybrid": {**MAMBA, "layer_types": HYBRID},
    "recurrent_gemma": {"lru_width": 32, "attention_window_size": 8, "block_types": ["recurrent", "attention"]},
    "olmo_hybrid": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "rwkv": {"attention_hidden_size": 32},
    "minimax": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "gemma3_text": {"sliding_window": 8},
}
PROMPTS = [[5, 6, 7, 8, 9, 10, 11], [5, 6, 7, 8, 9, 10, 11], [12, 13], [20, 21, 22, 23]]
NEW, END = 6, 63


def tiny(family: str) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = CONFIG_MAPPING[family]
    known = {*kind().to_dict(), *kind.attribute_map}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(kind(**{k: v for k, v in TINY.items() if k in known} | FAMILIES[family]))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.15)
    return model.eval()


def greedy(model: Any, prompts: list[list[int]]) -> list[Sampled]:
    return sample(model, prompts, SamplingParams(max_tokens=NEW, eos_ids=(END,), pad_id=0, temperature=0))


def cut(tokens: list[int]) -> tuple[int, ...]:
    return tuple(tokens[: tokens.index(END) + 1] if END in tokens else tokens)


@pytest.mark.filterwarnings("ignore")  # of kernels that are not installed
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_is_what_transformers_generates_and_log_probabilities_are_those_of_a_forward_pass(family: str) -> None:
    model = tiny(family)
    found = greedy(model, PROMPTS)
    for prompt, one in zip(PROMPTS, found, strict=True):
        alone = model.generate(
            torch.tensor([prompt]), max_new_tokens=NEW, do_sample=False, eos_token_id=END, pad_token_id=0
        )
        assert one.token_ids == cut(alone[0, len(prompt) :].tolist())
        ids = torch.tensor([[*prompt, *one.token_ids]])
        with torch.no_grad():
            logprobs = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].log_softmax(dim=-1)
        plain = logprobs.gather(-1, torch.tensor(one.token_ids)[:, None])[:, 0]
        assert torch.allclose(plain, torch.tensor(one.logprobs), atol=1e-3)


@pytest.mark.filterwarnings("ignore")
def test_rows_of_models_with_states_are_never_padded_and_told_of_under_their_numbers() -> None:
    model = tiny("mamba")
    assert needs_equal_lengths(model)
    assert not needs_equal_lengths(tiny("gemma3_text"))
    told: dict[int, Sampled] = {}
    params = SamplingParams(max_tokens=NEW, eos_ids=tuple(range(30)), pad_id=0, temperature=0)
    found = sample(model, PROMPTS, params, lambda numbers, done: told.update(zip(numbers, done, strict=True)))
    assert [told[number] for number in range(len(PROMPTS))] == found


def test_an_encoder_is_refused_before_a_run() -> None:
    from transformers import BertConfig, GPT2Config

    refuse_no_decoder(GPT2Config())
    refuse_no_decoder(BertConfig(is_decoder=True))
    with pytest.raises(UsageError, match="reads a text in both directions"):
        refuse_no_decoder(BertConfig())


def test_a_family_that_is_known_to_come_out_wrong_is_refused_before_a_run() -> None:
    from transformers import GPT2Config, ProphetNetConfig

    refuse_miscomputed(GPT2Config())
    with pytest.raises(UsageError, match=r"type 'prophetnet' computes other probabilities .*docs/models\.md"):
        refuse_miscomputed(ProphetNetConfig())
