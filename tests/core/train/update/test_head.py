"""The output layer of real models, whatever stands on it: the same numbers and gradients as by its own logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from grpo.core.train.update.forward import completion_logps
from grpo.core.train.update.head import attach_logps, head_parameters, logit_shape
from grpo.plugins.errors import UsageError

VOCABULARY, PROMPT, COMPLETION, TEMPERATURE = 50, 4, 6, 0.7


def model_of(family: str, **settings: Any) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    config = AutoConfig.for_model(
        family,
        vocab_size=VOCABULARY,
        hidden_size=16,
        head_dim=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=24,
        initializer_range=0.4,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        **settings,
    )
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager")


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(3, VOCABULARY, (3, PROMPT + COMPLETION), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(ids)
    mask[0, :2] = mask[1, -2:] = 0
    return ids, mask


def compare(model: Any) -> None:
    """Compares with the log-softmax of the model's own logits, and every gradient with theirs."""
    ids, mask = batch()
    present = mask[:, PROMPT:].bool()
    weight = torch.randn(present.shape, generator=torch.Generator().manual_seed(3)) * present
    results = []
    for own in (False, True):
        model.zero_grad()
        if own:
            logps, entropy, *_ = completion_logps(model, ids, mask, COMPLETION, pack_for=None, entropy="value")
        else:
            logits = model(input_ids=ids, attention_mask=mask).logits[:, PROMPT - 1 : -1].float() / TEMPERATURE
            every = logits.log_softmax(dim=-1)
            logps = every.gather(-1, ids[:, PROMPT:, None])[..., 0]
            entropy = -(every.exp() * every).sum(dim=-1)
        (logps * weight).sum().backward()
        assert entropy is not None
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        results.append((logps.detach()[present], entropy.detach()[present], gradients))
    (logps, entropy, theirs), (own_logps, own_entropy, ours) = results
    torch.testing.assert_close(own_logps, logps, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(own_entropy, entropy, rtol=1e-5, atol=1e-5)
    assert ours.keys() == theirs.keys()
    assert ours
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("qwen2", {"tie_word_embeddings": True}),
        ("llama", {}),
        ("gemma2", {"final_logit_softcapping": 3.0}),
        ("cohere", {"logit_scale": 0.25}),
        ("granite", {"logits_scaling": 4.0}),
    ],
)
def test_full_training_of_a_family(family: str, settings: dict[str, Any]) -> None:
    model = model_of(family, **settings)
    attach_logps(model, TEMPERATURE)
    compare(model)


@pytest.mark.parametrize("targets", [["q_proj"], ["q_proj", "lm_head"]])
def test_an_adapter_also_on_the_output_layer(targets: list[str]) -> None:
    from peft import LoraConfig, get_peft_model

    model = model_of("llama")
    adapted = get_peft_model(model, LoraConfig(r=3, lora_alpha=6, target_modules=targets, init_lora_weights=False))
    attach_logps(model, TEMPERATURE)
    compare(adapted)
    with adapted.disable_adapter():
        weight, _, adapter = head_parameters(model.get_output_embeddings())
        assert weight.shape == (VOCABULARY, 16)
        assert adapter is None
    adapted.merge_adapter()
    assert head_parameters(model.get_output_embeddings())[2] is None


def test_an_output_layer_that_trains_whole_beside_an_adapter() -> None:
    from peft import LoraConfig, get_peft_model

    model = model_of("llama")
    config = LoraConfig(r=3, target_modules=["q_proj"], modules_to_save=["lm_head"], init_lora_weights=False)
    adapted = get_peft_model(model, config)
    attach_logps(model, TEMPERATURE)
    compare(adapted)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"use_dora": True}, "variant of LoRA"), ({"lora_dropout": 0.1}, "lora.dropout does not work")],
)
def test_variants_of_an_adapter_on_the_output_layer_are_refused(settings: dict[str, Any], message: str) -> None:
    from peft import LoraConfig, get_peft_model

    model = model_of("llama")
    adapted = get_peft_model(model, LoraConfig(r=3, target_modules=["lm_head"], **settings)).train()
    with pytest.raises(UsageError, match=message):
        head_parameters(adapted.get_base_model().get_output_embeddings())


def test_an_output_layer_of_another_kind_is_refused() -> None:
    with pytest.raises(UsageError, match=r"a Embedding, not a linear layer.*train.head='trl'"):
        head_parameters(torch.nn.Embedding(3, 2))


def test_a_call_without_labels_is_the_models_own() -> None:
    model = model_of("llama")
    ids, mask = batch()
    before = model(input_ids=ids, attention_mask=mask).logits
    attach_logps(model, TEMPERATURE)
    assert torch.equal(model(input_ids=ids, attention_mask=mask).logits, before)
    assert model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=2, do_sample=False).shape[1] == 12


def test_the_shape_of_logits_by_configuration() -> None:
    from transformers import AutoConfig

    assert logit_shape(AutoConfig.for_model("llama")) == (None, 1.0)
    assert logit_shape(AutoConfig.for_model("gemma2", final_logit_softcapping=30.0)) == (30.0, 1.0)
    assert logit_shape(AutoConfig.for_model("granite", logits_scaling=8.0)) == (None, 0.125)
