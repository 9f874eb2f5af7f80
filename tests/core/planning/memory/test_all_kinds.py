"""Every kind of language model that transformers knows is planned for, or refused in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from grpo.core.config.sections import LoraSection
from grpo.core.planning.memory.estimate import Shape, shape
from grpo.core.policy.blocks import can_pack
from grpo.core.policy.load import count_parameters, empty_model, linear_modules, refuse_unknown_targets
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
