"""Two processes that really share a policy and sample with the real vLLM, beside the same run with whole policies.

FSDP 2 and ZeRO-3 shard every tensor over gloo (tests/support/sharded_command.py). An engine in each process or servers
are handed the weights in each of the ways that there are; rollouts are of one turn and of several.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import sharded_command
import torch
from engine_bench import REAL_VLLM
from rollout_server import Server
from safetensors.torch import load_file
from same_metrics import assert_same_metrics, metrics_of

pytestmark = REAL_VLLM

STEPS = 3
SETTINGS = f"""
env = ["gsm8k:weight=0.5", "guess:weight=0.5"]
train = {{ steps = {STEPS}, lr = 1e-4, prompts_per_step = 4, group_size = 4, micro_batch_size = 4 }}
evaluation = {{ size = 5, every = 2 }}
output = {{ save_every = 2 }}

[rollout]
max_completion_length = 24
max_turns = 3
max_rollout_length = 300
"""
ADAPTER = ("--set", "lora.enabled=true", "--set", "lora.rank=4", "--set", "rollout.lora_sync=folded")
NOISE = "k_proj.bias"  # softmax takes its gradient away, and Adam makes steps of what rounding leaves


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("sharded")
    (found / "run.toml").write_text(SETTINGS, encoding="utf-8")
    return found


def train(folder: Path, name: str, sharding: Mapping[str, str], *more: str) -> Path:
    said = sharded_command.run(
        ["run", "--config", str(folder / "run.toml"), "--out", str(folder / name), *more], sharding
    )
    assert f"done after step {STEPS}" in said
    return folder / name


@pytest.fixture(scope="module")
def whole(folder: Path) -> Path:
    """Whole policies, and an engine in each process."""
    return train(folder, "whole", {}, "--rollout", "vllm")


@pytest.fixture(scope="module")
def whole_adapter(folder: Path) -> Path:
    return train(folder, "whole-adapter", {}, "--rollout", "vllm", *ADAPTER)


def on(*servers: Server) -> tuple[str, ...]:
    return "--rollout", "vllm-server", "--server-url", ",".join(server.url for server in servers)


def sent(way: str) -> tuple[str, ...]:
    return "--set", f"rollout.weight_sync={way}"


def steps(run: Path) -> list[dict[str, Any]]:
    """The metrics of the steps; a line before them is of the evaluation before training."""
    return [row for row in metrics_of(run) if row["step"] > 0]


def assert_alike(run: Path, other: Path) -> None:
    """The same samples, and weights that differ by the rounding of sums in another order; every sync was proven."""
    told = metrics_of(run)
    assert_same_metrics(told, metrics_of(other), without=("sync/", "sampling/sampling_logp_difference"))
    assert max(row["env/guess/turns"] for row in told if row["step"]) > 1.0
    assert sum("held_out/accuracy" in row for row in told) == 3
    for row in steps(run):
        assert row["sampling/sampling_logp_difference/max"] < 1e-3
        assert "sync/repeated" not in row
    (found,), (due,) = ((path / "model").glob("*.safetensors") for path in (run, other))
    weights, whole = load_file(found), load_file(due)
    assert weights.keys() == whole.keys()
    for name, tensor in whole.items():
        if not name.endswith(NOISE):
            torch.testing.assert_close(weights[name], tensor, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.nightly
def test_engines_in_the_processes_of_fsdp_sample_the_run_of_whole_policies(folder: Path, whole: Path) -> None:
    run = train(folder, "fsdp", sharded_command.FSDP, "--rollout", "vllm")
    assert_alike(run, whole)
    assert [row["sync/bytes"] for row in steps(run)] == [row["sync/bytes"] for row in steps(whole)]


@pytest.mark.nightly
def test_what_changed_in_a_folded_adapter_under_fsdp_goes_to_a_server_that_both_processes_share(
    folder: Path, whole_adapter: Path, servers: list[Server]
) -> None:
    """The second process has no server of its own, and goes along."""
    run = train(folder, "fsdp-adapter", sharded_command.FSDP, *on(servers[0]), *ADAPTER, *sent("delta"))
    assert_alike(run, whole_adapter)
    assert all(0.0 < row["sync/share"] < 0.9 for row in steps(run)[1:]), "the embedding and the norms stayed"


@pytest.mark.nightly
@pytest.mark.deepspeed
def test_weights_under_zero3_are_broadcast_to_the_servers_of_both_processes(
    folder: Path, whole: Path, servers: list[Server]
) -> None:
    run = train(folder, "zero3", sharded_command.zero(3, folder), *on(*servers), *sent("broadcast"))
    assert_alike(run, whole)
    for row, other in zip(steps(run), steps(whole), strict=True):
        assert 1.0 < row["sync/bytes"] / other["sync/bytes"] < 1.2, "a group is sent a head that is the embedding, too"


@pytest.mark.nightly
@pytest.mark.deepspeed
def test_an_adapter_under_zero3_goes_alone_to_the_engines_in_the_processes(folder: Path, whole_adapter: Path) -> None:
    alone = ("--set", "rollout.lora_sync=adapter")
    run = train(folder, "zero3-adapter", sharded_command.zero(3, folder), "--rollout", "vllm", *ADAPTER, *alone)
    assert_alike(run, whole_adapter)
    for row, other in zip(steps(run), steps(whole_adapter), strict=True):
        assert row["sync/bytes"] < other["sync/bytes"] / 5, "the base went once, before the first step"
