"""Examples in, a supervised policy out: batches of chat prompts, loss on the replies alone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import islice

import torch
from demonstrations import Example
from torch.nn.functional import cross_entropy
from torch.optim import AdamW, Muon
from torch.optim.lr_scheduler import LambdaLR
from transformers import PreTrainedModel, PreTrainedTokenizerFast

_IGNORED = -100

_Pair = tuple[list[int], list[int]]  # token ids of a prompt and of its reply


def teach(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    examples: Iterable[Example],
    *,
    batch_size: int,
    steps: int,
    lr: float,
) -> None:
    """Trains `model` for `steps` steps; the rate is constant for the first half and then falls linearly to 0.

    Muon (https://kellerjordan.github.io/posts/muon/) moves the matrices of the layers, AdamW all the rest.
    """
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and ".layers." in name]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    optimizers = (
        Muon(matrices, lr=lr, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
        AdamW(rest, lr=lr, weight_decay=0.0, betas=(0.9, 0.95)),
    )
    schedulers = [LambdaLR(optimizer, lambda step: min(1.0, 2 * (1 - step / steps))) for optimizer in optimizers]
    model.train()
    began = time.perf_counter()
    remaining = iter(examples)
    for step in range(1, steps + 1):
        batch = [_tokenize(tokenizer, example) for example in islice(remaining, batch_size)]
        ids, labels = _collate(batch, tokenizer.pad_token_id)
        logits = model(input_ids=ids).logits
        loss = cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=_IGNORED)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, scheduler in zip(optimizers, schedulers, strict=True):
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if step % 50 == 0:
            print(f"step {step:4d}/{steps}  loss {loss.item():.3f}  {time.perf_counter() - began:.0f} s", flush=True)


def _tokenize(tokenizer: PreTrainedTokenizerFast, example: Example) -> _Pair:
    prompt = tokenizer.apply_chat_template(example.prompt, tokenize=False, add_generation_prompt=True)
    return tokenizer(prompt)["input_ids"], [*tokenizer(example.reply)["input_ids"], tokenizer.eos_token_id]


def _collate(batch: Sequence[_Pair], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels, both int64 [batch, longest]; padded on the right, which a causal model never looks at."""
    longest = max(len(head) + len(tail) for head, tail in batch)
    ids = torch.full((len(batch), longest), pad)
    labels = torch.full((len(batch), longest), _IGNORED)
    for row, (head, tail) in enumerate(batch):
        ids[row, : len(head) + len(tail)] = torch.tensor(head + tail)
        labels[row, len(head) : len(head) + len(tail)] = torch.tensor(tail)
    return ids, labels
