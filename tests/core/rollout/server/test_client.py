"""A real vLLM server on the loopback: the same proofs as in process, and a run whose server is killed in between."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_bench import REAL_VLLM, TOLERANCE, gap, move, prompts_of
from patience import RUN
from rollout_server import Server

from grpo.core.rollout.hf.sampler import sample
from grpo.core.rollout.sync.group import TransferGroup
from grpo.core.rollout.sync.payload import Adapter, adapter_of, fingerprints
from grpo.core.rollout.types import SamplingParams
from grpo.plugins.errors import RunError, UsageError

pytestmark = REAL_VLLM

PARAMS = SamplingParams(max_tokens=24, eos_ids=(), pad_id=0)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server()
    running.wait()
    yield running
    assert running.stop() == 0, "a server that is asked to stop goes in peace"


def config_of(url: str, **settings: Any) -> Any:
    from grpo.core.config.schema import parse_config

    tree = {
        "env": "gsm8k:size=40",
        "rewards": ["proximity"],
        "train": {"steps": 4, "lr": 1e-3, "prompts_per_step": 4},
        "evaluation": {"size": 0},
        "lora": {"enabled": True},
        **settings,
    }
    chosen = {"backend": "vllm-server", "server_url": url, "server_wait": RUN, "lora_sync": "adapter"}
    tree["rollout"] = {**chosen, **settings.get("rollout", {})}
    return parse_config(tree)


def rollouts_of(url: str, lora_sync: Any = "adapter", **rollout: Any) -> Any:
    from grpo.core.planning.decide import make_plan
    from grpo.core.rollout.open import open_rollouts
    from grpo.plugins.host import Host

    plan = make_plan(config_of(url, rollout={"lora_sync": lora_sync, **rollout}), Host.discover())
    return open_rollouts(plan, embedded())


def embedded() -> Any:
    from transformers import AutoModelForCausalLM

    from grpo.core.policy.load import policy_source

    return AutoModelForCausalLM.from_pretrained(policy_source(None).path, dtype=torch.float32)


def adapted() -> Any:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(embedded(), LoraConfig(r=16, target_modules="all-linear", alpha_pattern={"q_proj": 64}))
    move(model, 0.02)
    return model


def test_full_weights_are_served_as_they_train(server: Server) -> None:
    rollouts, model = rollouts_of(server.url), embedded()
    prompts = prompts_of([7, 150, 300], copies=3)
    for _ in range(2):
        metrics = rollouts.sync(model)
        torch.manual_seed(3)
        sampled = rollouts.generate(prompts, PARAMS)
        assert gap(model, prompts, sampled) < TOLERANCE
        assert rollouts.differing(model) == []
        assert metrics["sync/bytes"] >= sum(4 * p.numel() for p in model.parameters())
        move(model, 0.01)
    torch.manual_seed(3)
    assert rollouts.generate(prompts, PARAMS) == sampled, "a seed repeats a batch"
    assert len({one.token_ids for one in sampled[:3]}) > 1, "the members of a group differ"
    assert rollouts.differing(model) != [], "the policy has moved since"


@pytest.mark.parametrize("trains", ["full", "LoRA"])
def test_what_changed_is_served_like_everything(server: Server, trains: str) -> None:
    rollouts = rollouts_of(server.url, "folded", weight_sync="delta")
    model = embedded() if trains == "full" else adapted()
    prompts = prompts_of([7, 150], copies=2)
    shares = [rollouts.sync(model)["sync/share"]]
    for size in (0.05, 0.05, 0.0):
        some = "layers.1.mlp.down_proj"
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.requires_grad and (trains == "full" or some in name):
                    parameter.reshape(-1)[::200] += size
        shares.append(rollouts.sync(model)["sync/share"])
        assert rollouts.differing(model) == []
        assert gap(model, prompts, rollouts.generate(prompts, PARAMS)) < TOLERANCE
    assert 0.45 < shares[0] < 0.95, "the test change travelled whole, and what led back from it did not"
    assert max(shares[1:3]) < 0.2
    assert shares[3] < 0.01, "nothing changed"
    rollouts.sync(model, again=True)
    assert rollouts.sync(model)["sync/share"] < 0.01
    assert rollouts.sync(model, again=True)["sync/share"] > 0.45


@pytest.mark.parametrize("trains", ["full", "LoRA"])
def test_weights_of_a_group_are_served_as_they_train(server: Server, trains: str, monkeypatch: Any) -> None:
    rollouts = rollouts_of(server.url, "folded", weight_sync="broadcast")
    model = embedded() if trains == "full" else adapted()
    prompts = prompts_of([7, 150], copies=2)
    for _ in range(2):
        metrics = rollouts.sync(model)
        assert "sync/repeated" not in metrics
        assert gap(model, prompts, rollouts.generate(prompts, PARAMS)) < TOLERANCE
        assert rollouts.differing(model) == []
        move(model, 1e-6)
    send = TransferGroup.send
    sends: list[int] = []

    def flipped(self: Any, tensor: torch.Tensor) -> None:
        sends.append(1)
        send(self, tensor + 1e-3 if len(sends) == 9 else tensor)

    monkeypatch.setattr(TransferGroup, "send", flipped)
    assert rollouts.sync(model)["sync/repeated"] == 1.0, "one wrong tensor was found by its fingerprint"
    assert rollouts.differing(model) == []


def test_an_adapter_is_handed_over_in_memory_and_compared_bit_for_bit(server: Server) -> None:
    rollouts, model = rollouts_of(server.url), adapted()
    prompts = prompts_of([7, 150], copies=2)
    rollouts.sync(model)
    move(model, 1e-6)
    metrics = rollouts.sync(model)
    assert metrics["sync/bytes"] == adapter_of(model).bytes, "the frozen weights stay where they are"
    expected = adapter_of(model)
    assert rollouts.engines[0].link.adapter_fingerprints(expected, 9) == fingerprints(expected.tensors, 9)
    assert gap(model, prompts, rollouts.generate(prompts, PARAMS)) < TOLERANCE
    assert rollouts.differing(model) == []


def test_a_stale_part_of_an_adapter_stops_the_run_by_name(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    rollouts, model = rollouts_of(server.url), adapted()
    stale = "base_model.model.model.layers.1.mlp.down_proj.lora_B.weight"
    kept = adapter_of(model).tensors[stale]
    rollouts.sync(model)
    move(model, 1e-6)
    put = rollouts.engines[0].link.put_adapter
    old = lambda adapter: put(Adapter(adapter.rank, {**adapter.tensors, stale: kept}))  # noqa: E731
    monkeypatch.setattr(rollouts.engines[0].link, "put_adapter", old)
    with pytest.raises(RunError, match=rf"second full sync.*{stale}"):
        rollouts.sync(model)


def test_the_server_and_the_policy_agree_greedily(server: Server) -> None:
    rollouts, model = rollouts_of(server.url, "folded"), adapted()
    rollouts.sync(model)
    greedy = SamplingParams(max_tokens=16, eos_ids=(2,), pad_id=0, temperature=0.0)
    prompts = prompts_of([20, 140])
    mine = sample(copy.deepcopy(model), prompts, greedy)
    assert [one.token_ids for one in rollouts.generate(prompts, greedy)] == [one.token_ids for one in mine]


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"lora": {"enabled": True, "rank": 32}}, "adapters up to rank 16, the run's has 32"),
        ({"rollout": {"max_completion_length": 600}}, r"its context is 512 tokens, .* --context \d+ .*--port"),
        ({"train": {"dtype": "bfloat16"}}, "it computes in float32, the run in bfloat16"),
    ],
)
def test_a_server_that_does_not_fit_is_refused_before_anything_loads(
    server: Server, settings: dict[str, Any], what: str
) -> None:
    from grpo.core.planning.decide import make_plan
    from grpo.plugins.host import Host

    with pytest.raises(UsageError, match=what):
        make_plan(config_of(server.url, **settings), Host.discover())


@pytest.mark.parametrize(
    ("ahead", "lora"),
    [pytest.param(1, False, marks=pytest.mark.nightly), pytest.param(2, False, marks=pytest.mark.nightly), (2, True)],
)
def test_several_environments_are_sampled_ahead(server: Server, tmp_path: Path, ahead: int, lora: bool) -> None:
    from grpo.core.display.progress import Silent
    from grpo.core.record.run_dir import RunDir, read_metrics
    from grpo.core.run.job import start
    from grpo.plugins.host import Host

    config = config_of(
        server.url,
        env=["gsm8k:weight=0.5", "guess:weight=0.5"],
        rewards=[],
        train={"steps": 3, "lr": 1e-3, "prompts_per_step": 4, "group_size": 4},
        rollout={"ahead": ahead, "max_turns": 3, "max_completion_length": 24, "max_rollout_length": 300},
        lora={"enabled": lora},
        evaluation={"size": 4, "every": 2},
    ).model_copy(update={"out": tmp_path / "run"})
    assert start(config, Host.discover(), Silent()).status == "done"
    rows = [row for row in read_metrics(RunDir(tmp_path / "run")) if "loss" in row]
    assert [row["sampling/staleness"] for row in rows] == [0.0, 1.0, float(ahead)]
    assert max(row["env/guess/turns"] for row in rows) > 1.0
    assert all(row["env/gsm8k/share"] == 0.5 for row in rows)
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-3
    assert not any("sync/batches_again" in row or "sync/repeated" in row for row in rows)


def test_a_run_survives_a_server_that_is_killed_between_sync_and_generation(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes back with two ranks that share each layer, and is proven like any other."""
    from grpo.core.display.progress import Silent
    from grpo.core.record.run_dir import RunDir, read_metrics
    from grpo.core.rollout.engine.proven import EngineRollouts
    from grpo.core.run.job import start
    from grpo.plugins.host import Host

    calls, warnings = [], []
    generate = EngineRollouts.generate

    def killing(self: Any, *arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            server.kill()
            server.start("--tensor-parallel", "2")
        return generate(self, *arguments, **named)

    class Told(Silent):
        def warned(self, text: str) -> None:
            warnings.append(text)

    monkeypatch.setattr(EngineRollouts, "generate", killing)
    config = config_of(server.url).model_copy(update={"out": tmp_path / "run"})
    assert start(config, Host.discover(), Told()).status == "done"
    rows = read_metrics(RunDir(tmp_path / "run"))
    assert len(rows) == 4
    assert len(calls) == 5, "the third batch was sampled again"
    assert [row.get("sync/repeated", 0.0) for row in rows] == [0.0, 0.0, 1.0, 0.0]
    whole = sum(4 * p.numel() for p in embedded().parameters())
    assert [row["sync/bytes"] > whole for row in rows] == [True, False, True, False], "the base came along again"
    assert max(row["sampling/sampling_logp_difference/max"] for row in rows) < 1e-3
    assert not any("sync/steps_again" in row for row in rows)
    assert "does not answer" in warnings[0]
    assert "grpo serve-rollouts --dtype float32" in warnings[0]
    assert "is back" in warnings[1]

    # All weights too, each rank with its part of them, compared bit for bit.
    rollouts, model = rollouts_of(server.url), embedded()
    move(model, 0.01)
    rollouts.sync(model)
    assert rollouts.differing(model) == []
    prompts = prompts_of([7, 150, 300], copies=2)
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        found.append(rollouts.generate(prompts, PARAMS))
    assert found[0] == found[1]
    assert gap(model, prompts, found[0]) < TOLERANCE
    together = rollouts_of(server.url, "folded", weight_sync="broadcast")
    move(model, 0.01)
    assert "sync/repeated" not in together.sync(model)
    assert together.differing(model) == [], "a group of the trainer and both ranks"
    rollouts.sync(model)
    put = rollouts.engines[0].link.put_weights
    stale = "model.layers.1.mlp.down_proj.weight"
    kept = model.get_parameter(stale).detach().clone()
    move(model, 1e-6)
    late = lambda weights: put((name, kept if name == stale else tensor) for name, tensor in weights)  # noqa: E731
    monkeypatch.setattr(rollouts.engines[0].link, "put_weights", late)
    with pytest.raises(RunError, match=rf"second full sync.*{stale}"):
        rollouts.sync(model)
