"""Numbers that are likely to be slips are told before anything loads; usual ones are not spoken of."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from grpo.core.config.schema import parse_config
from grpo.core.planning.facts import Facts
from grpo.core.planning.training import decide_optimizer, slips

MODEL = SimpleNamespace(get_text_config=lambda: SimpleNamespace(hidden_size=896))


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({}, []),
        ({"train": {"lr": 1e-4}}, []),
        ({"train": {"lr": 0.5}}, ["0.5 is 500,000 times the usual 1e-06"]),
        ({"train": {"lr": 0.5}, "lora": {"enabled": True}}, ["0.5 is 50,000 times the usual 1e-05"]),
        ({"rollout": {"temperature": 1.5}}, []),
        ({"rollout": {"temperature": 70}}, ["a temperature of 70 samples almost at random"]),
        ({"lora": {"enabled": True, "rank": 64}}, []),
        ({"lora": {"enabled": True, "rank": 4096}}, ["rank of 4096 is over the model's hidden size of 896"]),
    ],
)
def test_numbers_far_from_the_usual_ones_are_told(
    tree: dict[str, Any], told: list[str], facts_of: Callable[..., Facts]
) -> None:
    config, facts = parse_config({"env": "e", **tree}), facts_of()
    found = list(slips(config, facts, decide_optimizer(config, facts), MODEL))
    assert len(found) == len(told)
    assert all(part in text for part, text in zip(told, found, strict=True))
