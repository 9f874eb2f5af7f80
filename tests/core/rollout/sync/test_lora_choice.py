"""Which way of handing an adapter over is chosen, and why."""

from __future__ import annotations

import pytest

from grpo.core.rollout.sync.lora_choice import TRIALS, LoraChoice


def run(choice: LoraChoice, seconds: dict[bool, tuple[float, float]], batches: int) -> list[bool]:
    """Plays batches of 100 tokens; `seconds` gives those of the hand-over and of sampling, by whether it folds."""
    ways = []
    for _ in range(batches):
        folds = choice.choose(able=True)
        ways.append(folds)
        choice.synced(seconds[folds][0])
        choice.sampled(100, seconds[folds][1])
    return ways


@pytest.mark.parametrize(
    ("seconds", "folds"),
    [
        ({False: (0.01, 4.0), True: (0.10, 1.0)}, True),  # serving the adapter is slow, as on a CPU
        ({False: (0.01, 1.1), True: (5.00, 1.0)}, False),  # folding a large model is slow
    ],
)
def test_auto_takes_the_faster_of_both_after_trying_them(seconds: dict[bool, tuple[float, float]], folds: bool) -> None:
    ways = run(LoraChoice("auto"), seconds, 2 * TRIALS + 3)
    assert ways[: 2 * TRIALS] == [False] * TRIALS + [True] * TRIALS
    assert ways[2 * TRIALS :] == [folds] * 3


@pytest.mark.parametrize(("wish", "folds"), [("adapter", False), ("folded", True)])
def test_a_wish_is_followed_from_the_first_batch(wish: str, folds: bool) -> None:
    choice = LoraChoice(wish)  # type: ignore[arg-type]
    assert not choice.undecided
    assert run(choice, {False: (0, 9), True: (9, 9)}, 8) == [folds] * 8


def test_an_engine_without_adapters_gets_folded_weights() -> None:
    assert LoraChoice("auto").choose(able=False)
