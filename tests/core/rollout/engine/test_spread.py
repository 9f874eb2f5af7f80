"""Several engines as one: completions in the order of the prompts, prefixes together, a fault of one is one of all."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
import torch

from grpo.core.rollout.engine.spread import Seats, Spread
from grpo.core.rollout.sync.fault import EngineLost
from grpo.core.rollout.types import OnDone, Sampled, SamplingParams

PARAMS = SamplingParams(max_tokens=3, eos_ids=(), pad_id=0)


class Echo:
    """An engine that answers a prompt with itself and its seed; two of them answer only when both were asked."""

    def __init__(self, together: threading.Barrier) -> None:
        self._together = together
        self.asked: list[list[Sequence[int]]] = []
        self.lost = False

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, on_done: OnDone | None = None
    ) -> list[Sampled]:
        self._together.wait(60)
        self.asked.append(list(prompts))
        if self.lost:
            raise EngineLost("it is gone")
        done = [Sampled((*prompt, params.seeded()), (0.0,) * (len(prompt) + 1), "stop") for prompt in prompts]
        if on_done is not None:
            for number in reversed(range(len(done))):
                on_done([number], [done[number]])
        return done


@pytest.fixture
def both() -> list[Echo]:
    barrier = threading.Barrier(2)
    return [Echo(barrier), Echo(barrier)]


def test_groups_stay_together_and_nobody_waits_for_more_than_its_share() -> None:
    prompts = [[1]] * 4 + [[2]] * 4 + [[3]] * 4 + [[4]] * 2
    assert Seats(2).shares(prompts) == [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13]]
    assert Seats(3).shares([[1], [1]]) == [[0, 1], [], []]
    assert Seats(2).shares([]) == [[], []]
    assert Seats(2).shares([[1], [2], [1], [3]]) == [[0, 2], [1, 3]], "equal prompts that are apart go together, too"


def test_a_rollout_stays_where_its_prompt_was_computed_whoever_else_has_ended() -> None:
    seats = Seats(2)
    assert seats.shares([[1], [1], [2], [2], [3], [3]]) == [[0, 1, 4, 5], [2, 3]]
    assert seats.shares([[1, 7], [2, 8], [2, 9], [3, 5]]) == [[0, 3], [1, 2]]
    assert seats.shares([[2, 8, 1], [2, 9, 1]]) == [[], [0, 1]], "its prefix is worth more than another's idle engine"
    assert Seats(2).shares([[2, 8, 1], [2, 9, 1]]) == [[0], [1]], "another batch remembers nothing"


def test_the_longest_prefix_that_an_engine_knows_decides() -> None:
    seats = Seats(2)
    seats.shares([[1], [1, 2]])
    assert seats.shares([[1, 2, 3], [1, 4]]) == [[1], [0]]


def test_completions_come_in_the_order_of_the_prompts_and_are_told_under_their_numbers(both: list[Echo]) -> None:
    spread = Spread([engine.generate for engine in both])
    prompts = [[n // 2] for n in range(8)]
    told: dict[int, Sampled] = {}
    torch.manual_seed(1)
    found = spread.generate(
        prompts, PARAMS, lambda numbers, done: told.update(zip(numbers, done, strict=True)), spread.seats()
    )
    assert [one.token_ids[0] for one in found] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [told[number] for number in range(8)] == found
    assert [len(engine.asked[0]) for engine in both] == [4, 4]
    assert found[0].token_ids[1] != found[2].token_ids[1], "each engine draws other numbers"
    torch.manual_seed(1)
    assert spread.generate(prompts, PARAMS, None, spread.seats()) == found, "a seed repeats a batch"
    spread.close()


def test_an_engine_that_is_lost_is_the_fault_of_the_batch_when_the_others_have_ended(both: list[Echo]) -> None:
    spread = Spread([engine.generate for engine in both])
    both[0].lost = True
    with pytest.raises(EngineLost):
        spread.generate([[1], [2]], PARAMS, None, spread.seats())
    assert len(both[1].asked) == 1
    both[0].lost = False
    assert len(spread.generate([[1], [2]], PARAMS, None, spread.seats())) == 2
    spread.close()
