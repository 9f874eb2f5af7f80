"""Whether a run fits into this machine's memory: what is chosen, and what is refused with the settings that fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from plain_shape import plain_shape

from grpo.core.config.defaults import Dtype
from grpo.core.config.schema import parse_config
from grpo.core.config.settings import RolloutSettings
from grpo.core.planning.decide import make_plan
from grpo.core.planning.memory import fit
from grpo.core.planning.memory.budget import GIB, Device
from grpo.core.planning.memory.estimate import Shape
from grpo.core.planning.memory.fit import Load, decide_memory
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host

MIB = 2**20
# One MiB for each token in memory, whatever is done with it, and four GiB that are always there.
MODEL = plain_shape(MIB)


def with_memory(monkeypatch: pytest.MonkeyPatch, total: float) -> None:
    monkeypatch.setattr(fit, "this_device", lambda: Device("cpu", round(total + 0.75 * GIB)))


def plan_of(**changes: Any) -> Any:
    return make_plan(parse_config({"env": "gsm8k", "rewards": ["proximity"], **changes}), Host.discover())


def decided(micro_batch_size: int, train: dict[str, Any], **rollout: Any) -> str:
    """Decides for prompts of 100 tokens and completions of 900."""
    load = Load(
        micro_batch_size,
        "bfloat16",
        RolloutSettings(max_completion_length=900, **rollout),
        longest_prompt=100,
    )
    return decide_memory(parse_config({"env": "gsm8k", "train": train, "rollout": rollout}), load, None)


@pytest.mark.core
def test_a_run_that_cannot_fit_is_refused_with_the_settings_that_fit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with_memory(monkeypatch, 100 * MIB)
    with pytest.raises(UsageError, match=r"needs about .* GiB of memory") as refused:
        plan_of()
    proposed = [word for word in str(refused.value).split() if word.startswith(("train.", "rollout."))]
    assert proposed[-1] == "train.check_memory=false"
    train: dict[str, Any] = {}
    rollout: dict[str, Any] = {}
    for pair in proposed[:-1]:
        key, _, value = pair.partition("=")
        section, name = key.split(".")
        (train if section == "train" else rollout)[name] = json.loads(value)
    assert plan_of(train=train, rollout=rollout).config.train.micro_batch_size == train["micro_batch_size"] < 64
    assert plan_of(train={"check_memory": False})


def test_a_run_whose_weights_alone_are_too_large_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with_memory(monkeypatch, 5 * MIB)
    with pytest.raises(UsageError, match="weights, gradients and optimizer alone"):
        plan_of()


def test_sequences_that_wait_inside_vllms_share_of_a_gpu_are_no_reason_to_refuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fit, "this_device", lambda: Device("cuda", 40 * GIB))
    monkeypatch.setattr(fit, "shape", lambda *_, **__: MODEL)

    def check(backend: str, memory_share: float, **settings: Any) -> None:
        train = {"prompts_per_step": 64, "checkpointing": "full"}
        assert decided(1, train, backend=backend, memory_share=memory_share, **settings) == "full"

    check("vllm", 0.3)  # its 12 GiB, and 3 of the policy
    check("vllm", 0.85)  # 34 GiB, which are the policy's again in an update
    with pytest.raises(UsageError, match=r"\(update\), and 4\.5 GiB are usable"):
        check("vllm", 0.85, ahead=1)
    with pytest.raises(UsageError, match=r"\(update\)"):
        check("vllm", 0.85, sleep=False)
    check("vllm-server", 0.3, server_url="http://localhost:1")
    with pytest.raises(UsageError, match=r"needs about 40\.0 GiB of memory \(generation\)"):
        check("vllm", 0.925)
    with pytest.raises(UsageError, match=r"\(generation\)"):  # 512 sequences of 1,000 MiB at once
        check("hf", 0.3)


def test_the_copy_of_what_a_server_was_sent_is_counted_in_the_hosts_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "shape", lambda *_, **__: MODEL)
    server = {"backend": "vllm-server", "server_url": "http://localhost:1", "weight_sync": "delta"}
    train = {"prompts_per_step": 1, "group_size": 2}
    with_memory(monkeypatch, 14 * GIB)
    decided(1, train, **{**server, "weight_sync": "everything"})
    with pytest.raises(UsageError, match=r"the run needs about 14\.8 GiB"):
        decided(1, train, **server)
    monkeypatch.setattr(fit, "this_device", lambda: Device("cuda", round(15.5 * GIB)))
    decided(1, train, **server)


def test_rollouts_that_are_carried_over_are_counted_while_they_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "shape", lambda *_, **__: MODEL)
    with_memory(monkeypatch, 20 * GIB)
    train = {"prompts_per_step": 2, "group_size": 4, "micro_batch_size": 1}
    assert decided(1, train)
    assert decided(1, train, partial=900)
    with pytest.raises(UsageError, match=r"\(generation\)"):  # ten parts, so 80 rollouts at once
        decided(1, train, partial=90)
    assert decided(1, train, partial=90, batch_size=4)


def test_the_versions_that_batches_ahead_are_sampled_from_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "shape", lambda *_, **__: MODEL)
    server = {"backend": "vllm-server", "server_url": "http://localhost:1", "weight_sync": "everything"}
    train = {"prompts_per_step": 1, "group_size": 2}
    with_memory(monkeypatch, 14 * GIB)
    decided(1, train, **server, ahead=1)
    with pytest.raises(UsageError, match=r"the run needs about 17\.8 GiB"):
        decided(1, train, **server, ahead=4)


@pytest.mark.parametrize(
    ("kind", "gib", "mode"),
    [("cuda", 4 + 82, "none"), ("cuda", 4 + 40, "full"), ("cuda", 4 + 10, "offload"), ("cpu", 1, "none")],
)
def test_the_fastest_checkpointing_that_fits_a_gpu_is_chosen(
    kind: str, gib: float, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "this_device", lambda: Device(kind, round((gib + 1.5) * GIB)))
    monkeypatch.setattr(fit, "shape", lambda *_, **__: MODEL)
    assert decided(8, {"check_memory": False}) == mode


def test_a_model_that_cannot_be_counted_is_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def uncountable(*_: Any, **__: Any) -> Shape:
        raise UsageError("cannot count")

    monkeypatch.setattr(fit, "this_device", lambda: Device("cuda", GIB))
    monkeypatch.setattr(fit, "shape", uncountable)
    assert decided(8, {}) == "none"
    assert decided(8, {"checkpointing": "offload"}) == "offload"


def test_processes_share_the_memory_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "this_device", lambda: Device("cpu", round(14.75 * GIB)))
    monkeypatch.setattr(fit, "shape", lambda *_, **__: MODEL)
    config = parse_config({"env": "gsm8k", "train": {"prompts_per_step": 1, "group_size": 2}})
    dtype: Dtype = "float32"
    rollout = RolloutSettings(max_completion_length=9)
    alone = Load(1, dtype, rollout, longest_prompt=91)
    decide_memory(config, alone, None)
    with pytest.raises(UsageError, match=r"and 2\.9 GiB are usable"):
        decide_memory(config, Load(1, dtype, rollout, longest_prompt=91, processes=4), None)


@pytest.mark.parametrize(
    ("partial", "max_turns", "parts"),
    [
        (0, (20,), 1),
        (1, (1,), 96),  # an answer of 96 tokens, a token a step
        (1, (20,), 4),  # rollout.max_turns is 4
        (1, (3,), 3),
        (96, (20,), 4),
        (200, (20,), 2),
        (96, (20, 1), 4),
        (1, (20, 1), 96),
    ],
)
def test_a_rollout_of_several_turns_has_no_more_parts_than_turns(
    partial: int, max_turns: tuple[int, ...], parts: int
) -> None:
    settings = RolloutSettings(max_completion_length=96, max_turns=4, max_rollout_length=400, partial=partial)
    assert fit.parts_of(settings, max_turns) == parts


def test_a_turn_a_step_fits_where_the_documentation_proposes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, 12 * GIB)
    plan = plan_of(env="guess", rewards=[], rollout={"partial": 1})
    assert plan.config.rollout.partial == 1


def test_a_run_is_counted_by_the_sharding_that_it_was_started_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "this_device", lambda: Device("cuda", round(3.5 * GIB)))
    monkeypatch.setattr(fit, "shape", lambda *_, **__: MODEL)
    config = parse_config({"env": "gsm8k", "train": {"prompts_per_step": 8, "group_size": 2}})
    dtype: Dtype = "bfloat16"
    rollout = RolloutSettings(max_completion_length=9)
    load = Load(1, dtype, rollout, longest_prompt=3, processes=8)
    with pytest.raises(UsageError, match=r"\d such GPUs hold it, sharded by FSDP 2 .*: accelerate launch --use_fsdp"):
        decide_memory(config, load, None)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")
    decide_memory(config, load, None)
