"""One stream of weights for several engines: each sees all of it, and it is read to its end whatever they do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from grpo.core.rollout.engine.weight_fanout import hand_out

Named = tuple[str, torch.Tensor]


def stream(number: int, read: list[str], broken: int | None = None) -> Iterator[Named]:
    for one in range(number):
        if one == broken:
            raise ValueError("no such weight")
        read.append(f"w{one}")
        yield f"w{one}", torch.full((2,), float(one))


@pytest.mark.parametrize("takers", [0, 1, 3])
def test_every_taker_sees_every_tensor_once_and_in_order(takers: int) -> None:
    read: list[str] = []
    taken = hand_out(stream(5, read), [lambda pairs: [(name, float(t[0])) for name, t in pairs]] * takers)
    assert read == [f"w{one}" for one in range(5)]
    assert [one.result() for one in taken] == [[(f"w{n}", float(n)) for n in range(5)]] * takers
    assert all(one.exception() is None for one in taken)


@pytest.mark.parametrize("others", [0, 1, 2])
def test_a_taker_that_gives_up_keeps_neither_the_stream_nor_the_others(others: int) -> None:
    def lost(pairs: Iterator[Named]) -> int:
        next(pairs)
        raise ConnectionError("it is gone")

    read: list[str] = []
    taken = hand_out(stream(50, read), [lost, *[lambda pairs: len(list(pairs))] * others])
    assert len(read) == 50
    assert isinstance(taken[0].exception(), ConnectionError)
    assert [one.result() for one in taken[1:]] == [50] * others


@pytest.mark.parametrize("takers", [0, 1, 2])
def test_a_stream_that_breaks_off_is_never_taken_for_its_end(takers: int) -> None:
    ended: list[Any] = []

    def take(pairs: Iterator[Named]) -> None:
        ended.append(len(list(pairs)))

    with pytest.raises(ValueError, match="no such weight"):
        hand_out(stream(5, [], broken=3), [take] * takers)
    assert ended == []


def test_no_more_than_a_few_tensors_exist_at_a_time() -> None:
    """A taker that is slow holds the stream back."""
    ahead: list[int] = []
    read: list[str] = []
    turn = threading.Lock()

    def slow(pairs: Iterator[Named]) -> None:
        for number, _ in enumerate(pairs):
            with turn:
                ahead.append(len(read) - number)

    hand_out(stream(200, read), [slow, slow])
    assert max(ahead) <= 4
