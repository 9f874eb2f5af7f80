"""Training's random numbers and threads after a library used them."""

from __future__ import annotations

import random

import numpy as np
import torch

from grpo.core.text.randomness import preserved_randomness


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_generators_and_threads_are_as_before() -> None:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    expected = draws()
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    threads, setter = torch.get_num_threads(), torch.set_num_threads
    with preserved_randomness():
        random.seed(99)
        np.random.seed(99)
        torch.manual_seed(99)
        torch.set_num_threads(threads + 1)
        torch.set_num_threads = lambda nthreads: None
    assert torch.set_num_threads is setter
    assert torch.get_num_threads() == threads
    assert draws() == expected


def test_inside_a_seed_decides() -> None:
    found = []
    for seed in (4, 5, 4):
        with preserved_randomness(seed):
            found.append(float(torch.rand(())))
    assert found[0] == found[2] != found[1]
