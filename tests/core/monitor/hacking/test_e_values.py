"""Bets: wealth seldom grows where there is nothing to find, however often one looks, and soon where there is."""

from __future__ import annotations

import random

import pytest

from grpo.core.monitor.hacking import signals

STEPS, VALUES = 100, 8
LEVEL = 0.05


def first_ring(seed: int, bound: float, mean: float, begins: int = 0) -> int | None:
    """The first step of a run of 0s and 1s in which the wealth is 1 / LEVEL; their mean is the bound, later `mean`."""
    noise, bets = random.Random(seed), signals.TestMartingale()
    for step in range(STEPS):
        chance = mean if step >= begins else bound
        if bets.add([float(noise.random() < chance) for _ in range(VALUES)], bound) >= 1 / LEVEL:
            return step
    return None


@pytest.mark.parametrize("bound", [0.1, 0.5, 0.85])
def test_looking_after_every_step_rings_no_more_often_than_the_level(bound: float) -> None:
    rang = sum(first_ring(seed, bound, bound) is not None for seed in range(200))
    assert rang <= 2 * LEVEL * 200  # 10 are expected at most; 20 or more of them have a chance below 0.003


@pytest.mark.parametrize("begins", [0, 50])
def test_a_change_is_found_soon_wherever_it_begins(begins: int) -> None:
    found = [first_ring(seed, 0.5, 0.9, begins) for seed in range(20)]
    late = [step - begins for step in found if step is not None and step >= begins]
    assert len(late) >= 18
    assert max(late) <= 8


def test_steps_without_values_are_no_evidence() -> None:
    bets = signals.TestMartingale()
    assert max(bets.add([], 0.5) for _ in range(1000)) < 1
