"""Several backends as one: completions in the order of the prompts, groups together, a fault of one is one of all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch

from grpo.core.rollout.engine.spread import SpreadRollouts, shared_out
from grpo.core.rollout.sync.fault import EngineLost
from grpo.core.rollout.types import OnDone, Sampled, SamplingParams

PARAMS = SamplingParams(max_tokens=3, eos_ids=(), pad_id=0)


class Echo:
    """A backend that answers a prompt with itself and its seed; two of them answer only when both were asked."""

    exact = False

    def __init__(self, together: threading.Barrier, syncs: Mapping[str, float]) -> None:
        self._together = together
        self._syncs = syncs
        self.asked: list[list[Sequence[int]]] = []
        self.again: list[bool] = []
        self.lost = False

    def sync(self, model: Any, *, again: bool = False) -> Mapping[str, float]:
        self.again.append(again)
        return self._syncs

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, on_done: OnDone | None = None
    ) -> list[Sampled]:
        self._together.wait(10)
        self.asked.append(list(prompts))
        if self.lost:
            raise EngineLost("it is gone")
        done = [Sampled((*prompt, params.seeded()), (0.0,) * (len(prompt) + 1), "stop") for prompt in prompts]
        if on_done is not None:
            for number in reversed(range(len(done))):
                on_done([number], [done[number]])
        return done

    def turns(self) -> Callable[..., list[Sampled]]:
        return self.generate

    def differing(self, model: Any) -> list[str]:
        return list(self._syncs)

    def rest(self) -> None: ...
    def close(self) -> None: ...


@pytest.fixture
def both() -> list[Echo]:
    barrier = threading.Barrier(2)
    return [
        Echo(barrier, {"sync/bytes": 3.0, "sync/spot_difference": 1e-6}),
        Echo(barrier, {"sync/bytes": 4.0, "sync/spot_difference": 5e-6, "sync/repeated": 1.0}),
    ]


def test_groups_stay_together_and_nobody_waits_for_more_than_its_share() -> None:
    prompts = [[1]] * 4 + [[2]] * 4 + [[3]] * 4 + [[4]] * 2
    assert shared_out(prompts, 2) == [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13]]
    assert shared_out([[1], [1]], 3) == [[0, 1], [], []]
    assert shared_out([], 2) == [[], []]


def test_completions_come_in_the_order_of_the_prompts_and_are_told_under_their_numbers(both: list[Echo]) -> None:
    spread = SpreadRollouts(both)
    prompts = [[n // 2] for n in range(8)]
    told: dict[int, Sampled] = {}
    torch.manual_seed(1)
    found = spread.generate(prompts, PARAMS, lambda numbers, done: told.update(zip(numbers, done, strict=True)))
    assert [one.token_ids[0] for one in found] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [told[number] for number in range(8)] == found
    assert [len(member.asked[0]) for member in both] == [4, 4]
    assert found[0].token_ids[1] != found[2].token_ids[1], "each server draws other numbers"
    torch.manual_seed(1)
    assert spread.generate(prompts, PARAMS) == found, "a seed repeats a batch"
    spread.close()


def test_a_sync_reaches_every_member_and_the_worst_is_told(both: list[Echo]) -> None:
    spread = SpreadRollouts(both)
    assert spread.sync(None, again=True) == {"sync/bytes": 7.0, "sync/spot_difference": 5e-6, "sync/repeated": 1.0}
    assert [member.again for member in both] == [[True], [True]]
    assert spread.differing(None) == ["sync/bytes", "sync/repeated", "sync/spot_difference"]
    spread.close()


def test_a_server_that_is_lost_is_the_fault_of_the_batch_when_the_others_have_ended(both: list[Echo]) -> None:
    spread = SpreadRollouts(both)
    both[0].lost = True
    with pytest.raises(EngineLost):
        spread.generate([[1], [2]], PARAMS)
    assert len(both[1].asked) == 1
    both[0].lost = False
    assert len(spread.generate([[1], [2]], PARAMS)) == 2
    spread.close()
