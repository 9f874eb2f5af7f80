"""Keys and values that grow, and are read, without copies: what transformers computes."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig

from grpo.core.policy.attention import without_copies
from grpo.core.policy.modules import cache_argument
from grpo.core.rollout.hf.kv_cache import PreallocatedLayer
from grpo.core.rollout.hf.states import Carried


def roomy(most: int) -> PreallocatedLayer:
    cache: Any = DynamicCache()
    cache.update(torch.arange(12.0).view(2, 1, 3, 2), torch.arange(12.0, 24.0).view(2, 1, 3, 2), 0)
    Carried("cache", cache).make_room(most)
    layer = cache.layers[0]
    assert type(layer) is PreallocatedLayer
    return layer


def test_tokens_are_written_behind_the_others_and_nothing_moves() -> None:
    layer, places = roomy(40), set()
    expected = [layer.keys.clone()]
    for number in range(20):
        new = torch.full((2, 1, 1, 2), float(number))
        keys, values = layer.update(new, -new)
        expected.append(new)
        places.add(keys.data_ptr())
        assert torch.equal(keys, torch.cat(expected, dim=-2))
        assert torch.equal(values[..., -1, :], -new[..., 0, :])
    assert len(places) == 1
    assert layer.get_seq_length() == 23


def test_room_is_made_in_parts_and_never_more_than_will_be_needed() -> None:
    layer, places, most = roomy(300), set(), 0
    for _ in range(297):
        keys, _ = layer.update(torch.zeros(2, 1, 1, 2), torch.zeros(2, 1, 1, 2))
        places.add(keys.untyped_storage().data_ptr())
        most = max(most, keys.untyped_storage().nbytes())
    assert most == 2 * 300 * 2 * 4
    assert keys.shape[-2] == 300


def test_rows_that_are_chosen_go_on_from_what_they_had() -> None:
    layer = roomy(40)
    layer.update(torch.full((2, 1, 1, 2), 7.0), torch.zeros(2, 1, 1, 2))
    before = layer.keys.clone()
    layer.reorder_cache(torch.LongTensor([1, 1, 0]))
    keys, _ = layer.update(torch.full((3, 1, 1, 2), 8.0), torch.zeros(3, 1, 1, 2))
    assert torch.equal(keys[..., :-1, :], before[[1, 1, 0]])


def test_a_new_token_attends_to_what_its_heads_share_through_a_mask() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        initializer_range=0.35,
        attn_implementation="sdpa",
    )
    model = AutoModelForCausalLM.from_config(config).eval()
    ids = torch.randint(2, 50, (3, 9))
    mask = torch.ones(3, 10, dtype=torch.long)
    mask[0, :4], mask[2, :1] = 0, 0
    found = []
    for attends in (False, True):
        cache = DynamicCache()
        with torch.no_grad():
            model(input_ids=ids, attention_mask=mask[:, :-1], **{cache_argument(model): cache})
            step = {"input_ids": ids[:, :1], "attention_mask": mask, cache_argument(model): cache}
            if attends:
                with without_copies(model):
                    assert model.config._attn_implementation != "sdpa"
                    found.append(model(**step).logits)
            else:
                found.append(model(**step).logits)
    torch.testing.assert_close(found[1], found[0])
    assert model.config._attn_implementation == "sdpa"
