"""Distributes prompts over engines, a group to one, the next turn to the same, and keeps the order of completions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from grpo.core.rollout.draws import drawn_seed
from grpo.core.rollout.types import OnDone, PromptIds, Sampled, SamplingParams, runs

Generate = Callable[[PromptIds, SamplingParams, "OnDone | None"], list[Sampled]]


class Seats:
    """Remembers which engine has computed which prompts, from one turn to the next."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._seats: list[tuple[list[int], int]] = []

    def shares(self, prompts: PromptIds) -> list[list[int]]:
        """Assigns prompts by number to the engine of an earlier one that they begin with; equal ones together."""
        shares: list[list[int]] = [[] for _ in range(self._number)]
        unique, copies = runs(prompts)
        known = sorted(self._seats, key=lambda seat: -len(seat[0]))
        new: dict[tuple[int, ...], int] = {}
        first = 0
        for prompt, count in zip(unique, copies, strict=True):
            words = list(prompt)
            seat = next((seat for begin, seat in known if words[: len(begin)] == begin), None)
            if seat is None:
                seat = new.get(tuple(words))
            if seat is None:
                seat = min(range(self._number), key=lambda number: len(shares[number]))
                new[tuple(words)] = seat
            shares[seat].extend(range(first, first + count))
            first += count
        self._seats += [(list(words), seat) for words, seat in new.items()]
        return shares


class Spread:
    """Several engines that hold the same policy, as one."""

    def __init__(self, engines: Sequence[Generate]) -> None:
        self._engines = list(engines)
        self._threads = ThreadPoolExecutor(len(self._engines), thread_name_prefix="grpo-rollouts")

    def seats(self) -> Seats:
        return Seats(len(self._engines))

    def generate(
        self, prompts: PromptIds, params: SamplingParams, on_done: OnDone | None, seats: Seats
    ) -> list[Sampled]:
        """Samples on all of them at once; what one of them raises is raised when all have ended."""
        if len(self._engines) == 1:
            return self._engines[0](prompts, params, on_done)
        shares = seats.shares(prompts)
        telling = threading.Lock()

        def numbered(numbers: Sequence[int]) -> OnDone | None:
            if on_done is None:
                return None

            def tell(places: Sequence[int], done: Sequence[Sampled]) -> None:
                with telling:
                    on_done([numbers[place] for place in places], done)

            return tell

        # Drawn here: threads would draw in any order.
        seeds = [drawn_seed() for _ in shares]
        futures = [
            self._threads.submit(generate, [prompts[n] for n in numbers], replace(params, seed=seed), numbered(numbers))
            for generate, numbers, seed in zip(self._engines, shares, seeds, strict=True)
            if numbers
        ]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        completions: dict[int, Sampled] = {}
        for numbers, future in zip([share for share in shares if share], futures, strict=True):
            completions.update(zip(numbers, future.result(), strict=True))
        return [completions[number] for number in range(len(prompts))]

    def close(self) -> None:
        self._threads.shutdown()
