"""The length reward: flat between the two bounds, straight lines outside."""

from typing import Any

import pytest

from grpo.plugins.errors import OptionError
from grpo.plugins.types import Completion
from grpo.rewards.shape.length import length


def test_it_is_flat_up_to_the_target_and_zero_from_the_limit() -> None:
    scores = [length("a" * n, target=10, limit=20, minimum=4, unit="characters") for n in (0, 2, 4, 10, 15, 20, 99)]
    assert scores == [0.0, 0.5, 1.0, 1.0, 0.5, 0.0, 0.0]


def test_tokens_are_counted_where_they_are_known() -> None:
    sampled = Completion("two words", token_ids=(1, 2, 3, 4, 5))
    assert length(sampled, unit="tokens", target=4, limit=6) == 0.5
    assert length(Completion("two words"), unit="tokens") is None
    assert length(Completion(""), unit="tokens") == 0.0


def test_completions_and_their_text_score_alike() -> None:
    assert length(Completion("two words"), minimum=4) == length("two words", minimum=4) == 0.5


def test_zero_minimum_allows_silence() -> None:
    assert length("", minimum=0) == 1.0


@pytest.mark.parametrize("bounds", [{"target": 300}, {"minimum": 200}, {"minimum": -1}, {"limit": 0}])
def test_bounds_out_of_order_are_refused(bounds: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="0 <= minimum <= target < limit"):
        length("text", **bounds)
