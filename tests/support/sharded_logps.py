"""One of two processes that share a model's weights: log-probabilities and gradients beside those of whole weights.

    python sharded_logps.py RANK FILE

FILE is where the processes meet. Prints one line for each case; test_sharded.py runs both and reads them.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

from grpo.core.train.update import packing
from grpo.core.train.update.forward import completion_logps
from grpo.core.train.update.head import attach_logps

PROMPT, COMPLETION, VOCABULARY, HIDDEN = 4, 6, 50, 16


def small_model(*, lora: bool) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    config = AutoConfig.for_model(
        "qwen2",
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=24,
        initializer_range=0.3,
        tie_word_embeddings=False,
    )
    model = AutoModelForCausalLM.from_config(config)
    attach_logps(model, 1.0)
    if not lora:
        return model
    from peft import LoraConfig, get_peft_model

    return get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "lm_head"], init_lora_weights=False))


def inner(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "peft_config") else model


def layers_and_rest(model: Any) -> Any:
    for layer in inner(model).model.layers:
        fully_shard(layer)
    return fully_shard(model)


def head_of_its_own(model: Any) -> Any:
    fully_shard(inner(model).get_output_embeddings())
    return layers_and_rest(model)


def flat(model: Any) -> Any:
    return FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))


def loss_of(model: Any, rank: int, pack_for: int | None, *, known: bool) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2 + rank)
    ids = torch.randint(3, VOCABULARY, (4, PROMPT + COMPLETION), generator=generator)
    ids[:, :PROMPT] = ids[0, :PROMPT]
    mask = torch.ones_like(ids)
    mask[0, -2:] = 0
    if pack_for is not None:
        row = packing.pack(ids, mask, COMPLETION, pack_for, torch.float32)
        assert row is not None
        assert row.blocks is not None
        assert any(part.after for part in row.blocks.parts), "nothing is shared"
    weights = torch.randn(4, COMPLETION, generator=generator) * mask[:, PROMPT:]
    logps, *_ = completion_logps(
        model,
        ids,
        mask,
        COMPLETION,
        pack_for=pack_for,
        entropy="none",
        coefficients=(lambda _: weights) if known else None,
    )
    return (logps * weights).sum(), logps.detach()


def gradients(model: Any) -> dict[str, torch.Tensor]:
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model, with_grads=True):
            found = {name: p.grad for name, p in model.named_parameters() if p.requires_grad and p.grad is not None}
            return {name.replace("_fsdp_wrapped_module.", ""): grad.clone() for name, grad in found.items()}
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {name: g.full_tensor() if hasattr(g, "full_tensor") else g for name, g in found.items()}


def compare(name: str, shard: Callable[[Any], Any], rank: int, *, lora: bool, known: bool) -> None:
    whole = small_model(lora=lora)
    sharded = shard(copy.deepcopy(whole))
    attach_logps(inner(whole), 1.0)  # a copied method would still be that of the first model
    losses = [loss_of(whole, number, None, known=False) for number in range(2)]
    torch.stack([loss for loss, _ in losses]).mean().backward()
    loss, logps = loss_of(sharded, rank, HIDDEN, known=known)
    torch.testing.assert_close(logps, losses[rank][1], rtol=0, atol=1e-5)
    loss.backward()
    wanted, found = gradients(whole), gradients(sharded)
    assert wanted.keys() == found.keys(), (name, wanted.keys() ^ found.keys())
    for parameter, gradient in wanted.items():
        torch.testing.assert_close(found[parameter], gradient, rtol=1e-4, atol=1e-5, msg=f"{name}: {parameter}")
    print(f"{name}, {'adapter' if lora else 'full'}, {'known' if known else 'unknown'}: equal", flush=True)


def main() -> None:
    packing.CALL["cpu"] = 0  # so small a batch would not share its prompt otherwise
    rank, meeting = int(sys.argv[1]), sys.argv[2]
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    ways: dict[str, Callable[[Any], Any]] = {"layers": layers_and_rest, "head": head_of_its_own, "flat": flat}
    for name, shard in ways.items():
        for lora in (False, True):
            for known in (False, True):
                compare(name, shard, rank, lora=lora, known=known)
    torch.distributed.barrier()
    os._exit(0)  # as our processes do: taking a group and its threads apart aborts once in a while


if __name__ == "__main__":
    main()
