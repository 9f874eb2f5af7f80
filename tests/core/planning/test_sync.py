"""An engine whose weights could not be those that train, or not in time, is refused before anything loads."""

from __future__ import annotations

from typing import Any

import pytest

from grpo.core.config.schema import RunConfig, parse_config
from grpo.core.planning.sync import decide_sync, refuse_impossible_sync
from grpo.plugins.errors import UsageError

LORA = {"enabled": True}


def config(**settings: Any) -> RunConfig:
    return parse_config({"env": "gsm8k", **settings, "rollout": {"backend": "vllm", **settings.get("rollout", {})}})


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"lora": {**LORA, "bits": 4}}, r"lora\.bits with vLLM"),
        ({"lora": {**LORA, "bits": 4}, "rollout": {"backend": "vllm-server"}}, r"lora\.bits with vLLM"),
        ({"rollout": {"ahead": 1, "backend": "hf"}}, "samples with the weights that train"),
        ({"rollout": {"ahead": 1}, "train": {"head": "trl"}}, r"--ahead 1 with train\.head='trl'"),
        ({"rollout": {"share_weights": True, "backend": "hf"}, "lora": LORA}, "--share-weights with --rollout hf"),
        ({"rollout": {"share_weights": True}}, "--share-weights with full fine-tuning"),
        ({"rollout": {"share_weights": True}, "lora": {**LORA, "bits": 4}}, r"--share-weights with lora\.bits"),
    ],
)
def test_what_could_not_be_in_step_is_refused(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        refuse_impossible_sync(config(**settings))


@pytest.mark.parametrize(
    "settings",
    [
        {"rollout": {"backend": "hf"}, "lora": {**LORA, "bits": 4}},
        {"rollout": {"ahead": 1}},
        {"rollout": {"ahead": 1, "share_weights": True}, "lora": LORA},
    ],
)
def test_what_can_be_in_step_is_not(settings: dict[str, Any]) -> None:
    refuse_impossible_sync(config(**settings))


SERVER = {"backend": "vllm-server"}


@pytest.mark.parametrize(
    ("settings", "dtype", "chosen"),
    [
        ({"rollout": SERVER}, "bfloat16", "delta"),
        ({"rollout": SERVER}, "float32", "everything"),
        ({"rollout": {**SERVER, "weight_sync": "delta"}}, "float32", "delta"),
        ({"rollout": {**SERVER, "weight_sync": "everything"}}, "bfloat16", "everything"),
        ({"rollout": {**SERVER, "weight_sync": "broadcast"}}, "bfloat16", "broadcast"),
        ({"rollout": {**SERVER, "lora_sync": "folded"}, "lora": LORA}, "bfloat16", "delta"),
        ({"rollout": SERVER, "lora": LORA}, "bfloat16", "everything"),
        ({"rollout": {**SERVER, "weight_sync": "delta"}, "lora": LORA}, "bfloat16", "delta"),
        ({}, "bfloat16", "everything"),
    ],
)
def test_what_changed_is_looked_for_where_it_is_little_and_has_to_travel(
    settings: dict[str, Any], dtype: Any, chosen: str
) -> None:
    assert decide_sync(config(**settings), dtype) == chosen


@pytest.mark.parametrize("way", ["delta", "broadcast"])
@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({}, "--rollout vllm: policy and engine are in one process"),
        ({"backend": "hf"}, "--rollout hf: policy and engine are in one process"),
        ({**SERVER, "lora_sync": "adapter"}, "--lora-sync adapter: the adapter alone travels"),
    ],
)
def test_ways_of_weights_that_do_not_travel_are_refused(settings: dict[str, Any], what: str, way: str) -> None:
    with pytest.raises(UsageError, match=f"rollout.weight_sync='{way}' with {what}"):
        decide_sync(config(rollout={**settings, "weight_sync": way}, lora=LORA), "bfloat16")
