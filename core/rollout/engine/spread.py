"""Rollouts of several servers that each hold the whole policy (data parallel), every one proven by itself.

In: prompts. Out: their completions, in the order of the prompts. The members of a group stay on one server, which
computes their prompt once; servers sample at the same time and are handed weights one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch

from grpo.core.rollout.types import SEEDS, OnDone, Rollouts, Sampled, SamplingParams, runs

LARGEST = (
    "sync/spot_difference",
    "sync/share",
    "sync/repeated",
    "sync/folded",
)  # of several servers; other metrics are summed


class SpreadRollouts:
    """Several backends as one.

    Args:
        members: backends that serve the same policy.
    """

    exact = False

    def __init__(self, members: Sequence[Rollouts]) -> None:
        self._members = list(members)
        self._threads = ThreadPoolExecutor(len(self._members), thread_name_prefix="grpo-rollouts")

    def sync(self, model: Any, *, again: bool = False) -> Mapping[str, float]:
        """Hands the policy to one after the other, see `Rollouts.sync`."""
        together: dict[str, float] = {}
        for member in self._members:
            for name, value in member.sync(model, again=again).items():
                so_far = together.get(name, 0.0)
                together[name] = max(so_far, value) if name in LARGEST else so_far + value
        return together

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, on_done: OnDone | None = None
    ) -> list[Sampled]:
        """Samples on all of them at once, see `Rollouts.generate`; what one of them raises is raised when all ended."""
        shares = shared_out(prompts, len(self._members))
        telling = threading.Lock()

        def numbered(numbers: Sequence[int]) -> OnDone | None:
            if on_done is None:
                return None

            def tell(places: Sequence[int], done: Sequence[Sampled]) -> None:
                with telling:
                    on_done([numbers[place] for place in places], done)

            return tell

        # Drawn here: threads would draw from torch's generator in any order.
        seeds = [int(torch.randint(SEEDS, ())) for _ in shares]
        futures = [
            self._threads.submit(
                member.generate, [prompts[n] for n in numbers], replace(params, seed=seed), numbered(numbers)
            )
            for member, numbers, seed in zip(self._members, shares, seeds, strict=True)
            if numbers
        ]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        found: dict[int, Sampled] = {}
        for numbers, future in zip([share for share in shares if share], futures, strict=True):
            found.update(zip(numbers, future.result(), strict=True))
        return [found[number] for number in range(len(prompts))]

    def turns(self) -> Callable[[Sequence[Sequence[int]], SamplingParams], list[Sampled]]:
        """Samples every turn by `generate`."""
        return self.generate

    def differing(self, model: Any) -> list[str]:
        """Returns the names that differ in any of them, see `Rollouts.differing`."""
        return sorted({name for member in self._members for name in member.differing(model)})

    def rest(self) -> None:
        """Lets each give up its memory."""
        for member in self._members:
            member.rest()

    def close(self) -> None:
        """Leaves each."""
        for member in self._members:
            member.close()
        self._threads.shutdown()


def shared_out(prompts: Sequence[Sequence[int]], number: int) -> list[list[int]]:
    """Deals prompts out by their numbers; equal neighbours go together, to whoever has the fewest so far."""
    shares: list[list[int]] = [[] for _ in range(number)]
    first = 0
    for copies in runs(prompts)[1]:
        min(shares, key=len).extend(range(first, first + copies))
        first += copies
    return shares
