"""Keeps this process's random numbers and thread count as they were while a library uses them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def preserved_randomness(seed: int | None = None) -> Iterator[None]:
    """Restores the generators of Python, NumPy and torch (all devices) and torch's thread count, which vLLM changes.

    `seed`: of torch's generators inside; None: they go on.
    """
    python, numpy, threads = random.getstate(), np.random.get_state(), torch.get_num_threads()
    set_threads = torch.set_num_threads
    try:
        with torch.random.fork_rng():
            if seed is not None:
                torch.manual_seed(seed)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_num_threads = set_threads
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
