"""Sharding is what was asked for, or a refusal."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grpo.core.processes.sharding import (
    CONFIG_FILE,
    Sharding,
    asked_sharding,
    refuse_lost_sharding,
    refuse_unfit_sharding,
    refuse_unsharded,
    settle_launcher,
)
from grpo.plugins.errors import RunError, UsageError

FSDP = Sharding("FSDP", 2)
ZERO2, ZERO3 = Sharding("DeepSpeed", 2), Sharding("DeepSpeed", 3)
AUTO = dict.fromkeys(("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"), "auto")


@pytest.fixture(autouse=True)
def _launched(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("ACCELERATE_", "FSDP_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LOCAL_RANK", "0")
    # What a test has the module set is taken back, too.
    for name in ("FSDP_CPU_RAM_EFFICIENT_LOADING", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"):
        monkeypatch.setenv(name, "as it was")


def state(kind: str) -> Any:
    return SimpleNamespace(distributed_type=f"DistributedType.{kind}", device=SimpleNamespace(type="cpu"))


def file_of(folder: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    file = folder / "zero.json"
    file.write_text(settings if isinstance(settings, str) else json.dumps(settings))
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    monkeypatch.setenv(CONFIG_FILE, str(file))


def test_nothing_is_sharded_unless_the_launcher_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked_sharding() is None
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "false")
    assert asked_sharding() is None
    refuse_unsharded(None, object(), sharded=False)


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}, FSDP),
        ({"ACCELERATE_USE_FSDP": "1"}, Sharding("FSDP", 1)),
        ({"ACCELERATE_USE_DEEPSPEED": "true"}, ZERO2),
        ({"ACCELERATE_USE_DEEPSPEED": "True", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}, ZERO3),
    ],
)
def test_the_launchers_variables_say_what_is_asked(
    variables: dict[str, str], asked: Sharding, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert asked_sharding() == asked


def test_a_file_of_settings_says_the_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file_of(tmp_path, monkeypatch, {"zero_optimization": {"stage": 3}, **AUTO})
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2")
    assert asked_sharding() == ZERO3


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("{", "cannot be read"),
        ("[]", "holds no settings"),
        ({}, "zero_optimization.stage is None. Choose 1, 2 or 3"),
        ({"zero_optimization": {"stage": 0}}, "stage is 0"),
    ],
)
def test_a_file_without_a_stage_is_refused(
    settings: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_of(tmp_path, monkeypatch, settings)
    with pytest.raises(UsageError, match=words):
        asked_sharding()


@pytest.mark.deepspeed
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gradient_clipping": 1.0}, "gradient_clipping is 1.0"),
        ({"gradient_accumulation_steps": None}, "gradient_accumulation_steps is missing"),
        ({"train_batch_size": 8}, "leave train_batch_size out"),
        ({"optimizer": {"type": "Adam"}}, "leave optimizer out"),
        ({"scheduler": {"type": "WarmupLR"}}, "Set train.lr_schedule"),
    ],
)
def test_what_the_plan_decides_is_left_to_it(
    change: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"zero_optimization": {"stage": 2}, **AUTO}
    file_of(tmp_path, monkeypatch, settings)
    refuse_unfit_sharding(asked_sharding(), "float32", gpu=False)
    settings = {name: value for name, value in {**settings, **change}.items() if value is not None}
    file_of(tmp_path, monkeypatch, settings)
    with pytest.raises(UsageError, match=words):
        refuse_unfit_sharding(asked_sharding(), "float32", gpu=False)


def test_one_process_shards_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_RANK")
    with pytest.raises(UsageError, match="there is one process"):
        refuse_unfit_sharding(FSDP, "float32", gpu=True)


def test_the_first_fsdp_is_refused() -> None:
    with pytest.raises(UsageError, match="fsdp_version: 2"):
        refuse_unfit_sharding(Sharding("FSDP", 1), "float32", gpu=True)


@pytest.mark.deepspeed
def test_deepspeed_trains_16_bits_on_gpus_only() -> None:
    refuse_unfit_sharding(ZERO3, "bfloat16", gpu=True)
    with pytest.raises(UsageError, match=r"train\.dtype='float32'"):
        refuse_unfit_sharding(ZERO3, "bfloat16", gpu=False)


@pytest.mark.parametrize(
    ("sharding", "kind", "lost"),
    [
        (FSDP, "MULTI_GPU", False),
        (FSDP, "MULTI_CPU", True),
        (FSDP, "NO", True),
        (ZERO3, "DEEPSPEED", False),
        (ZERO3, "MULTI_CPU", True),
        (ZERO2, "MULTI_GPU", True),
    ],
)
def test_processes_that_would_not_shard_are_refused(sharding: Sharding, kind: str, lost: bool) -> None:
    if not lost:
        refuse_lost_sharding(sharding, state(kind))
        return
    with pytest.raises(UsageError, match=f"{sharding} was asked for, and accelerate would not shard.* for {kind} on"):
        refuse_lost_sharding(sharding, state(kind))


def test_a_variable_that_switches_deepspeed_off_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    with pytest.raises(UsageError, match="leave ACCELERATE_USE_CPU out"):
        refuse_lost_sharding(ZERO3, state("DEEPSPEED"))


class DeepSpeedEngine:
    """Of that name."""


@pytest.mark.parametrize(
    ("sharding", "wrapped", "sharded", "fits"),
    [
        (FSDP, object(), True, True),
        (FSDP, object(), False, False),
        (ZERO3, DeepSpeedEngine(), True, True),
        (ZERO3, DeepSpeedEngine(), False, False),
        (ZERO2, DeepSpeedEngine(), False, True),
        (ZERO2, object(), False, False),
    ],
)
def test_a_policy_that_is_wrapped_otherwise_never_trains(
    sharding: Sharding, wrapped: Any, sharded: bool, fits: bool
) -> None:
    if fits:
        refuse_unsharded(sharding, wrapped, sharded=sharded)
        return
    with pytest.raises(RunError, match="Nothing was trained"):
        refuse_unsharded(sharding, wrapped, sharded=sharded)


def test_every_process_loads_and_the_plan_counts_micro_batches() -> None:
    settle_launcher(FSDP)
    assert os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] == "false"
    assert os.environ["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == "as it was"
    settle_launcher(ZERO3)
    assert os.environ["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == "auto"
