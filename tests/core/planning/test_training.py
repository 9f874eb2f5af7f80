"""How a generation is divided among processes and micro batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from grpo.core.config.schema import parse_config
from grpo.core.planning.facts import Facts
from grpo.core.planning.training import decide_batch, refuse_uneven_batch
from grpo.plugins.errors import UsageError


def micro(facts: Facts, prompt: int = 300, completion: int = 512, turns: bool = False, **train: Any) -> int:
    config = parse_config({"env": "one", "train": train})
    refuse_uneven_batch(config, facts)
    return decide_batch(config, facts, prompt, completion, turns=turns)


def test_the_largest_divisor_that_a_model_takes_at_once_is_chosen(facts_of: Callable[..., Facts]) -> None:
    assert micro(facts_of(embedded=True)) == 64
    assert micro(facts_of()) == 8
    assert micro(facts_of(), prompts_per_step=1, group_size=9) == 3
    assert micro(facts_of(processes=2), prompts_per_step=2, group_size=7) == 7
    assert micro(facts_of(), micro_batch_size=32) == 32


def test_more_short_completions_go_through_the_model_at_once(facts_of: Callable[..., Facts]) -> None:
    assert micro(facts_of(), completion=48) == 16  # of two groups, which have a prompt each
    assert micro(facts_of(), prompt=1000, completion=48) == 8
    assert micro(facts_of(), completion=48, prompts_per_step=2) == 16
    assert micro(facts_of(), prompt=10, completion=10) == 64
    assert micro(facts_of(), completion=48, share_prompts=False) == 8
    assert micro(facts_of(), completion=48, head="trl") == 8


def test_what_cannot_be_divided_is_refused_with_what_can(facts_of: Callable[..., Facts]) -> None:
    with pytest.raises(UsageError, match=r"64 cannot be shared by 3 processes"):
        micro(facts_of(processes=3))
    with pytest.raises(UsageError, match=r"does not divide the 32 completions .* Choose one of 1, 2, 4, 8, 16, 32\."):
        micro(facts_of(processes=2), micro_batch_size=3)


@pytest.mark.parametrize(
    ("context", "wished", "expected"), [(1000, None, 8), (2048, None, 4), (4300, None, 1), (4300, 8, 8)]
)
def test_rows_of_several_turns_go_through_the_model_as_many_as_have_8192_tokens(
    context: int, wished: int | None, expected: int, facts_of: Callable[..., Facts]
) -> None:
    assert micro(facts_of(), context - 200, 200, turns=True, micro_batch_size=wished) == expected
