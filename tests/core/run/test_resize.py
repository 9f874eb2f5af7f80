"""A run goes on in other processes with settings that fit them, or says why it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo.core.config.schema import RunConfig, parse_config
from grpo.core.run.continuing import resized
from grpo.plugins.errors import UsageError

FSDP = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}


def config(**rollout: Any) -> RunConfig:
    train = {"steps": 4, "prompts_per_step": 4, "group_size": 4, "micro_batch_size": 8}
    return parse_config({"env": "gsm8k", "train": train, "rollout": rollout})


def test_micro_batches_become_as_large_as_divides_the_share_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    before = config()
    after, notes = resized(before, {"processes": 2, "sharding": "nothing"}, Path())
    assert after.train.micro_batch_size == 4
    assert after.model_copy(update={"train": before.train}) == before
    assert notes == [
        "the processes of this run were 2, and are 4 now: metrics continue up to rounding; micro batches have 4 "
        "completions, not 8, to divide the share of a process"
    ]


@pytest.mark.parametrize("recorded", [{}, {"processes": 2}, {"processes": 2, "sharding": "nothing"}], ids=str)
def test_the_same_processes_go_on_without_a_word(recorded: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert resized(config(), recorded, Path()) == (config(), [])


def test_batches_of_each_process_are_not_shared_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    ahead = config(ahead=1, backend="vllm")
    with pytest.raises(UsageError, match=r"were 2, and are 3 now: with --ahead a checkpoint .* Resume it with 2\."):
        resized(ahead, {"processes": 2}, Path())
    assert resized(ahead, {"processes": 2}, None)[1], "from the beginning there is no such batch"


def test_parts_of_deepspeed_are_not_put_together_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    (tmp_path / "global_step2").mkdir()
    with pytest.raises(UsageError, match=r"DeepSpeed wrote the optimizer's state in 2 parts\. Resume it with as many"):
        resized(config(), {"processes": 2}, tmp_path)


@pytest.mark.parametrize(
    ("recorded", "variables", "words"),
    [
        ("FSDP 2", {}, "shared FSDP 2, and nothing now"),
        ("DeepSpeed ZeRO-2", {}, "shared DeepSpeed ZeRO-2, and nothing now"),
        ("nothing", FSDP, "shared nothing, and FSDP 2 now"),
    ],
    ids=["FSDP to DDP", "DeepSpeed to DDP", "DDP to FSDP"],
)
def test_an_optimizer_that_would_be_lost_with_the_sharding_is_told_of(
    recorded: str, variables: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    record = {"processes": 2, "sharding": recorded}
    with pytest.raises(UsageError, match=f"{words}: the optimizer's state in its checkpoints .* Resume it as it was"):
        resized(config(), record, Path())
    assert resized(config(), record, None) == (config(), [])
