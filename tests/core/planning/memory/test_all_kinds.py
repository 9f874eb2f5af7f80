"""Every kind of language model that transformers knows is planned for, or refused in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from grpo.core.config.sections import LoraSection
from grpo.core.planning.memory.activations import count_activations, empty_policy
from grpo.core.planning.memory.estimate import Shape, shape
from grpo.core.policy.blocks import can_pack
from grpo.core.policy.load import add_lora, count_parameters, empty_model, linear_modules, refuse_unknown_targets
from grpo.core.rollout.server.capabilities import traits_of
from grpo.core.rollout.types import context_length, refuse_miscomputed, refuse_no_decoder, refuse_unsafe_rope
from grpo.core.train.update.head import logit_shape
from grpo.plugins.errors import UsageError

PLAIN, LORA = LoraSection(), LoraSection(enabled=True, rank=2)
ASKED: tuple[Callable[[Any], Any], ...] = (  # what planning and a server ask of a configuration
    refuse_unsafe_rope,
    refuse_no_decoder,
    refuse_miscomputed,
    context_length,
    can_pack,
    traits_of,
    count_parameters,
    linear_modules,
    lambda config: logit_shape(config.get_text_config()),
    lambda config: refuse_unknown_targets(LoraSection(enabled=True, targets=("q_proj",)), config),
    lambda config: shape(config, "float32", PLAIN, reference=True),
    lambda config: shape(config, "bfloat16", LORA),
)
COUNTED = (  # of those that people train: none of them may become one that cannot be counted
    *("llama", "qwen2", "qwen3", "mistral", "ministral3", "gemma2", "gemma3", "gemma4", "gemma4_text", "gemma3n_text"),
    *("phi3", "olmo3", "granite", "glm4", "cohere2", "smollm3", "exaone4", "gpt2", "gpt_neox", "deepseek_v3", "llama4"),
    *("llama4_text", "bamba"),
)


def kinds() -> list[str]:
    from transformers.models.auto import modeling_auto

    causal = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return sorted({*causal, *modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES})


def small(kind: str) -> Any:
    """A configuration of few layers where the kind can have so few, else its default; None where it has none."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    few = {"num_hidden_layers": 2}
    makes: Iterator[dict[str, Any]] = iter(({**few, "text_config": few}, few, {}))
    for settings in makes:
        try:
            config = CONFIG_MAPPING[kind](**settings)
            empty_model(config)
        except UsageError:
            if settings:
                continue
        except Exception:  # a configuration that needs what only its parts can tell
            continue
        return config
    return None


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_every_kind_of_language_model_is_counted_or_refused_with_the_reason() -> None:
    raw: list[tuple[str, Exception]] = []
    for kind in kinds():
        config = small(kind)
        if config is None:
            continue
        for ask in ASKED:
            try:
                ask(config)
            except UsageError as refusal:
                if "\n" in str(refusal):
                    raw.append((kind, refusal))
            except Exception as error:
                raw.append((kind, error))
    assert raw == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", COUNTED)
def test_what_people_train_can_be_counted(kind: str) -> None:
    counted = shape(small(kind), "float32", PLAIN)
    assert isinstance(counted, Shape)
    assert counted.cache > 0
    assert counted.activations.layer > 0


TINY = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
ROUTED = {**TINY, "num_key_value_heads": 2, "intermediate_size": 64, "num_experts_per_tok": 2, "head_dim": 8}
SHAPES: dict[str, dict[str, Any]] = {
    "mixtral": {**ROUTED, "num_local_experts": 4},
    "qwen3_moe": {**ROUTED, "num_experts": 4, "moe_intermediate_size": 16},
    "olmoe": {**ROUTED, "num_experts": 4},
    "gpt_oss": {**ROUTED, "num_local_experts": 4, "sliding_window": 16},
    "falcon": {**TINY, "new_decoder_architecture": True, "num_kv_heads": 2},
    "falcon_h1": {**ROUTED, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 16},
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The following .* keys did not match")
@pytest.mark.parametrize("lora", [PLAIN, LORA], ids=["full", "lora"])
@pytest.mark.parametrize("kind", SHAPES)
def test_what_is_counted_is_what_is_made_of_the_model(kind: str, lora: LoraSection) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(kind, pad_token_id=0, eos_token_id=1, bos_token_id=2, **SHAPES[kind])
    for dtype in ("float32", "bfloat16"):
        counted = shape(config, dtype, lora)
        model: Any = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
        policy = add_lora(model, lora) if lora.enabled else model
        trained = [weight for weight in policy.parameters() if weight.requires_grad]
        assert counted.parameters == sum(weight.numel() for weight in policy.parameters()) - (
            sum(weight.numel() for weight in trained) if lora.enabled else 0
        )
        assert counted.gradients == sum(weight.nbytes for weight in trained)
        assert counted.adapter == (counted.gradients if lora.enabled else 0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The following .* keys did not match")
@pytest.mark.parametrize("lora", [PLAIN, LORA], ids=["full", "lora"])
@pytest.mark.parametrize("kind", ["mixtral", "falcon"])
def test_activations_of_experts_and_of_falcon_are_what_real_tensors_take(kind: str, lora: LoraSection) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    larger = {"hidden_size": 64, **({"intermediate_size": 256, "head_dim": 16} if kind == "mixtral" else {})}
    sizes = {**SHAPES[kind], **larger}
    config = AutoConfig.for_model(kind, pad_token_id=0, eos_token_id=1, bos_token_id=2, **sizes)
    counted = count_activations(empty_policy(config, "bfloat16", lora))
    model: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    policy = add_lora(model, lora) if lora.enabled else model
    owned = {tensor.untyped_storage().data_ptr() for tensor in (*policy.parameters(), *policy.buffers())}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        mask = tensor.shape[-2:] == (200, 200)
        if not mask and tensor.untyped_storage().data_ptr() not in owned:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.base_model(input_ids=torch.zeros(1, 200, dtype=torch.int64), use_cache=False)
    assert counted.peak(200, "none") == pytest.approx(sum(one.nbytes() for one in kept.values()), rel=0.05)
    assert (counted.made > 1000) == (kind == "mixtral" and lora.enabled)
