"""Gives each completion random numbers by its place in the run (Philox), the same however a batch is split."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import torch

SEEDS = 2**31 - 1  # engines take seeds below this

_OWN: ContextVar[torch.Generator | None] = ContextVar("grpo_draws", default=None)


@contextmanager
def own_draws(seed: int) -> Iterator[None]:
    """Makes this thread draw the seeds of engines in the block from a generator of its own, not torch's global one."""
    token = _OWN.set(torch.Generator().manual_seed(seed))
    try:
        yield
    finally:
        _OWN.reset(token)


def draws() -> torch.Generator:
    """Returns what this thread draws the seeds of engines from: torch's global generator, unless it has its own."""
    return _OWN.get() or torch.default_generator


def drawn_seed() -> int:
    return int(torch.randint(SEEDS, (), generator=draws()))


def keys_of(seed: int, step: int, numbers: Iterable[int]) -> tuple[int, ...]:
    """Returns the keys of completions by step and their `numbers` in it over all processes; replacements come last."""
    places = (f"{seed} {step} {number}".encode() for number in numbers)
    return tuple(int.from_bytes(hashlib.blake2b(place, digest_size=15).digest()) for place in places)


def uniforms(keys: Sequence[int] | None, rows: int, length: int) -> torch.Tensor:
    """Returns [rows, length] float64 in [0, 1): each row by its key, all by torch's global generator without keys."""
    if keys is None:
        return torch.rand((rows, length), dtype=torch.float64)
    drawn = [np.random.Generator(np.random.Philox(key=key)).random(length) for key in keys]
    return torch.from_numpy(np.stack(drawn))
