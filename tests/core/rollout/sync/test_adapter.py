"""Adapters in the real vLLM: served as they train, alone or folded, and every planted fault is caught."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_bench import (
    PARAMS,
    RANK,
    REAL_VLLM,
    TOLERANCE,
    Faulty,
    base_model,
    engine_for,
    gap,
    move,
    prompts_of,
    rollouts_of,
    sync_with,
    with_adapter,
)

from grpo.core.rollout.sync.payload import fingerprints
from grpo.plugins.errors import RunError

pytestmark = REAL_VLLM


@pytest.fixture(scope="module")
def link(tied_model: Path) -> Iterator[Any]:
    """An engine with adapters."""
    engine = engine_for(tied_model, lora=True)
    yield engine
    engine.close()


@pytest.fixture
def lora(link: Any, tied_model: Path) -> tuple[Any, Any]:
    """The engine, and a policy with an adapter that is no longer fresh."""
    return link, with_adapter(tied_model)


@pytest.mark.parametrize("way", ["adapter", "folded"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"use_rslora": True}, {"alpha_pattern": {"q_proj": 64}, "rank_pattern": {"down_proj": 2}}],
    ids=["plain", "rank-stabilised", "patterns"],
)
def test_adapters_are_served_as_they_train(link: Any, tied_model: Path, way: str, settings: dict[str, Any]) -> None:
    model = with_adapter(tied_model, **settings)
    rollouts = rollouts_of(link, way)
    prompts = prompts_of([7, 150, 300], copies=2)
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    for _ in range(2):
        metrics = rollouts.sync(model)
        assert gap(model, prompts, rollouts.generate(prompts, PARAMS)) < TOLERANCE
        assert metrics["sync/folded"] == float(way == "folded")
        assert rollouts.differing(model) == []
        move(model, 0.01)
    assert all(torch.equal(p, frozen[name]) for name, p in model.named_parameters() if name in frozen)
    if way == "adapter":
        assert metrics["sync/bytes"] < sum(4 * p.numel() for p in model.parameters()) / 2


def test_auto_serves_the_policy_both_ways_while_it_measures(lora: tuple[Any, Any]) -> None:
    from grpo.core.rollout.sync.lora_choice import TRIALS

    link, model = lora
    rollouts = rollouts_of(link, "auto")
    prompts = prompts_of([20, 150])
    ways = []
    for _ in range(2 * TRIALS + 2):
        ways.append(rollouts.sync(model)["sync/folded"])
        assert gap(model, prompts, rollouts.generate(prompts, PARAMS)) < TOLERANCE
        move(model, 0.005)
    assert ways[: 2 * TRIALS] == [0.0] * TRIALS + [1.0] * TRIALS
    assert ways[-1] == ways[-2]


@pytest.mark.parametrize("size", [0.01, 1e-6], ids=["large step", "learning rate 1e-6"])
def test_a_stale_adapter_stops_the_run_by_name(lora: tuple[Any, Any], size: float) -> None:
    from grpo.core.rollout.sync.payload import Adapter, adapter_of

    link, model = lora
    kept = adapter_of(model)
    stale = "base_model.model.model.layers.0.self_attn.v_proj.lora_B.weight"

    def put(adapter: Adapter) -> None:
        link.put_adapter(Adapter(adapter.rank, {**adapter.tensors, stale: kept.tensors[stale]}))

    with pytest.raises(RunError, match=rf"second full sync.*{stale}"):
        sync_with(rollouts_of(link), link, model, size, put_adapter=put)


def test_an_adapter_that_is_dropped_stops_the_run(lora: tuple[Any, Any]) -> None:
    link, model = lora
    with pytest.raises(RunError, match=r"second full sync.*lora_A\.weight"):
        sync_with(rollouts_of(link), link, model, 0.01, put_adapter=lambda adapter: None)


def test_base_weights_served_in_the_place_of_the_adapter_stop_the_run(lora: tuple[Any, Any]) -> None:
    """The adapter is in the engine, bit for bit, and no request asks for it."""
    link, model = lora

    def put(adapter: Any) -> None:
        link.put_adapter(adapter)
        link._request = None

    with pytest.raises(RunError, match="second full sync"):
        sync_with(
            rollouts_of(link),
            link,
            model,
            0.01,
            put_adapter=put,
            adapter_fingerprints=lambda adapter, seed: fingerprints(adapter.tensors, seed),
        )


def test_base_weights_folded_without_their_adapter_stop_the_run(
    lora: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when adapters are unmerged before the copy: what is sent and what is served agree, and both are wrong."""
    from grpo.core.rollout.engine import proven as rollout_engine
    from grpo.core.rollout.sync.payload import weight_stream

    link, model = lora
    rollouts = rollouts_of(link, "folded")
    rollouts.sync(model)
    monkeypatch.setattr(rollout_engine, "weight_stream", lambda model, **_: weight_stream(model, base=True))
    with pytest.raises(RunError, match=r"fixed prompt differ|a test change"):
        rollouts.sync(model)


def test_a_wrong_scaling_stops_the_run(lora: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Scaled twice before the fingerprints are taken: only what the engine computes shows it."""
    from grpo.core.rollout.engine import proven as rollout_engine
    from grpo.core.rollout.sync.payload import Adapter, adapter_of

    def twice(model: Any, *changed: Any) -> Adapter:
        adapter = adapter_of(model, *changed)
        return Adapter(adapter.rank, {n: 2 * t if ".lora_B." in n else t for n, t in adapter.tensors.items()})

    link, model = lora
    rollouts = rollouts_of(link)
    rollouts.sync(model)
    monkeypatch.setattr(rollout_engine, "adapter_of", twice)
    with pytest.raises(RunError, match=r"fixed prompt differ|a test change"):
        rollouts.sync(model)


def test_an_engine_that_was_restarted_after_the_sync_is_not_sampled_from(lora: tuple[Any, Any]) -> None:
    from contextlib import nullcontext

    from grpo.core.rollout.sync.fault import SyncFault
    from grpo.core.rollout.synced import SyncedRollouts

    link, model = lora
    epochs = [0]
    faulty = Faulty(link, epoch=lambda: epochs[0])
    rollouts = rollouts_of(faulty)
    rollouts.sync(model)
    epochs[0] = 1
    with pytest.raises(SyncFault, match="restarted after the sync"):
        rollouts.generate(prompts_of([9]), PARAMS)
    prompts = prompts_of([9, 140])
    synced = SyncedRollouts(rollouts, lambda: nullcontext(model))
    sampled, metrics = synced.roll_out(lambda backend: backend.generate(prompts, PARAMS))
    assert gap(model, prompts, sampled) < TOLERANCE
    assert metrics["sync/bytes"] > sum(4 * p.numel() for p in model.parameters()), "the base weights came along"


def test_a_fresh_adapter_that_is_never_served_is_caught_at_the_start(link: Any, tied_model: Path) -> None:
    """B is zero, so base weights and adapter give the same numbers; only the self-test's change tells."""
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(base_model(tied_model), LoraConfig(r=RANK, target_modules="all-linear"))
    faulty = Faulty(
        link,
        put_adapter=lambda adapter: setattr(link, "_request", None),
        adapter_fingerprints=lambda adapter, seed: fingerprints(adapter.tensors, seed),
    )
    with pytest.raises(RunError, match="a test change of the weights should leave the engine within"):
        rollouts_of(faulty).sync(model)
