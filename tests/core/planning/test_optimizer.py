"""What trains, in which numbers and how fast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from grpo.core.config.schema import parse_config
from grpo.core.planning.facts import Facts
from grpo.core.planning.training import OptimizerPart, decide_optimizer
from grpo.plugins.errors import UsageError


def decided(facts: Facts, **tree: Any) -> OptimizerPart:
    return decide_optimizer(parse_config({"env": "one", **tree}), facts)


def test_an_adapter_learns_ten_times_as_fast_and_a_warm_up_ten_times_as_that(facts_of: Callable[..., Facts]) -> None:
    named, embedded = decided(facts_of()), decided(facts_of(embedded=True))
    assert (named.lr, embedded.lr) == (1e-6, 3e-5)
    adapted = decided(facts_of(), lora={"enabled": True})
    assert adapted.lr == pytest.approx(10 * named.lr)
    assert adapted.warmup_lr == pytest.approx(10 * adapted.lr)
    told = decided(facts_of(), train={"lr": 0.5, "warmup_lr": 0.25}, lora={"enabled": True})
    assert (told.lr, told.warmup_lr) == (0.5, 0.25)


def test_weights_are_bfloat16_for_a_named_model_on_a_gpu_only(
    facts_of: Callable[..., Facts], monkeypatch: pytest.MonkeyPatch
) -> None:
    for on_gpu, named in ((False, "float32"), (True, "bfloat16")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=on_gpu: there)
        assert decided(facts_of(), model="org/model").dtype == named
        assert decided(facts_of(embedded=True)).dtype == "float32"
    assert decided(facts_of(), train={"dtype": "bfloat16"}).dtype == "bfloat16"


def test_float16_is_for_adapters_only(facts_of: Callable[..., Facts]) -> None:
    with pytest.raises(UsageError, match="too small for float16"):
        decided(facts_of(), train={"dtype": "float16"})
    assert decided(facts_of(), train={"dtype": "float16"}, lora={"enabled": True}).dtype == "float16"
