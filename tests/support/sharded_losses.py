"""One of two processes that train one batch together: its loss, gradients and next weights beside those of one process.

    python sharded_losses.py RANK FILE WAY ...

FILE is where the processes meet; a WAY is ddp, fsdp, zero2 or zero3. Prints one line for each case.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import os
import sys
from typing import Any

import torch
from sharded_logps import HIDDEN, VOCABULARY, inner, layers_and_rest, small_model
from torch.nn.parallel import DistributedDataParallel

from grpo.core.config.sections import LossSection
from grpo.core.policy.whole import full_tensors, is_sharded
from grpo.core.train.losses.clipped import dapo
from grpo.core.train.update.adamw import CompensatedAdamW
from grpo.core.train.update.head import attach_logps
from grpo.core.train.update.policy_loss import PolicyLoss
from grpo.plugins._spec.binding import BoundLoss

ROWS, PROMPT, COMPLETION, LR = 8, 4, 6, 1e-2
ZERO = {
    "train_micro_batch_size_per_gpu": ROWS // 2,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,
}


def batch_of(rows: slice) -> dict[str, torch.Tensor]:
    """Rows of a batch that is the same on every process; some have no advantage, and are left out of the pass."""
    generator = torch.Generator().manual_seed(3)
    mask = torch.ones(ROWS, COMPLETION, dtype=torch.long)
    mask[1, 4:] = mask[5, 2:] = 0
    tensors = {
        "prompt_ids": torch.randint(3, VOCABULARY, (ROWS, PROMPT), generator=generator),
        "prompt_mask": torch.ones(ROWS, PROMPT, dtype=torch.long),
        "completion_ids": torch.randint(3, VOCABULARY, (ROWS, COMPLETION), generator=generator),
        "completion_mask": mask,
        "tool_mask": torch.ones_like(mask),
        "advantages": torch.randn(ROWS, generator=generator),
        "sampling_per_token_logps": -3 + torch.rand(ROWS, COMPLETION, generator=generator),
        "ref_per_token_logps": -3 + torch.rand(ROWS, COMPLETION, generator=generator),
    }
    tensors["advantages"][[0, 6]] = 0.0
    return {**{name: tensor[rows] for name, tensor in tensors.items()}, "num_items_in_batch": mask.sum()}


def loss_of(model: Any, rows: slice, processes: int, beta: float) -> torch.Tensor:
    settings = LossSection(beta=beta)
    value = PolicyLoss(
        BoundLoss(dapo),
        settings,
        "none",
        longest=COMPLETION,
        accumulation=1,
        processes=processes,
        pack_for=HIDDEN,
        autocast=contextlib.nullcontext,
    )
    return value(model, batch_of(rows), first_pass=True).loss


def sgd(model: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=LR)


def stepped(way: str, model: Any, rank: int, beta: float) -> tuple[Any, torch.Tensor]:
    """Makes one step of two processes; returns the policy and this process's loss."""
    rows = slice(rank * ROWS // 2, (rank + 1) * ROWS // 2)
    if way.startswith("zero"):
        import deepspeed

        zero = {"stage": int(way[-1]), "stage3_param_persistence_threshold": 0}
        config = {**ZERO, "zero_optimization": zero}
        engine, *_ = deepspeed.initialize(model=model, optimizer=sgd(model), config=config)
        loss = loss_of(engine, rows, 2, beta)
        engine.backward(loss)
        engine.step()
        return engine, loss
    wrapped = layers_and_rest(model) if way == "fsdp" else DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = sgd(wrapped)
    loss = loss_of(wrapped, rows, 2, beta)
    loss.backward()
    optimizer.step()
    return wrapped, loss


def compare(way: str, rank: int, gather: Any, *, lora: bool, beta: float) -> None:
    one = small_model(lora=lora)
    two = copy.deepcopy(one)
    attach_logps(inner(two), 1.0, gather)  # a copied method would still be that of the first model
    before = {name: p.detach().clone() for name, p in one.named_parameters()}
    optimizer = sgd(one)
    expected = loss_of(one, slice(None), 1, beta)
    expected.backward()
    optimizer.step()
    policy, loss = stepped(way, two, rank, beta)
    assert is_sharded(policy) == (way in ("fsdp", "zero3"))
    losses = [torch.zeros(()), torch.zeros(())]
    torch.distributed.all_gather(losses, loss.detach())
    torch.testing.assert_close(sum(losses) / 2, expected.detach(), rtol=1e-5, atol=1e-7)
    after = dict(full_tensors(policy))
    assert after.keys() == before.keys(), after.keys() ^ before.keys()
    for name, p in one.named_parameters():
        made, wanted = (after[name] - before[name]) / LR, (p.detach() - before[name]) / LR
        torch.testing.assert_close(made, wanted, rtol=1e-3, atol=2e-5, msg=lambda said: f"{way}: {name}: {said}")  # noqa: B023
    print(f"{way}, {'adapter' if lora else 'full'}, beta {beta}: equal", flush=True)


def compare_16_bits(rank: int) -> None:
    """The optimizer of bfloat16 on weights that FSDP shards: bit for bit what it makes of whole ones."""
    one = small_model(lora=False).to(torch.bfloat16)
    two = copy.deepcopy(one)
    for model in (one, two):
        attach_logps(inner(model), 1.0)
    two = layers_and_rest(two)
    optimizers = [CompensatedAdamW(model.parameters(), lr=1e-5) for model in (one, two)]
    for _ in range(3):
        for model, optimizer in zip((one, two), optimizers, strict=True):
            loss_of(model, slice(None), 1, 0.0).backward()  # all rows on both processes: their mean is exact
            optimizer.step()
            optimizer.zero_grad()
    whole = dict(one.named_parameters())
    for name, tensor in full_tensors(two):
        assert torch.equal(tensor, whole[name]), name
    assert any("weight_low" in state and state["weight_low"].to_local().any() for state in optimizers[1].state.values())
    print("fsdp, 16 bits: equal", flush=True)


def main() -> None:
    rank, meeting, ways = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    gather: Any = lambda *_: contextlib.nullcontext()  # noqa: E731
    if ways[0].startswith("zero"):
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "DS_ACCELERATOR": "cpu"}
        deepspeed = importlib.import_module("deepspeed")
        vars(importlib.import_module("deepspeed.comm.torch"))["build_shm_op"] = lambda: None
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
        gather = functools.partial(_gathered, deepspeed)
    for way in ways:
        for lora in (False, True):
            for beta in (0.0, 0.1):
                compare(way, rank, gather, lora=lora, beta=beta)
        if way == "fsdp":
            compare_16_bits(rank)
    torch.distributed.barrier()
    os._exit(0)  # as our processes do: taking a group and its threads apart aborts once in a while


def _gathered(deepspeed: Any, *parameters: Any) -> Any:
    sharded = [p for p in parameters if p is not None and hasattr(p, "ds_id")]
    away = [p for p in sharded if p.ds_status.name != "AVAILABLE"]
    return deepspeed.zero.GatheredParameters(away) if away else contextlib.nullcontext()


if __name__ == "__main__":
    main()
