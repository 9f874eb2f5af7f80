"""What fits, the settings that are proposed, and the refusal of a run that does not fit."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from command import grpo
from plain_shape import plain_shape

import grpo.core.planning.memory.budget as budget
from grpo.core.planning.memory.budget import (
    GIB,
    Device,
    Fit,
    Given,
    Job,
    best_fit,
    gpu_memory,
    largest_context,
    largest_group,
)
from grpo.plugins.errors import UsageError

MIB = 2**20
# One MiB for each token in memory, whatever is done with it, and four GiB that are always there.
MODEL = plain_shape(MIB)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80GB", 80 * GIB),
        ("24 GiB", 24 * GIB),
        ("1.5t", 1536 * GIB),
        ("4096m", 4 * GIB),
        ("24", 24 * GIB),
        ("2147483648B", 2 * GIB),
    ],
)
def test_sizes_are_read_as_makers_of_gpus_write_them(text: str, size: int) -> None:
    assert gpu_memory(text) == size
    assert gpu_memory(f"{size}B") == size


@pytest.mark.parametrize("text", ["", "big", "-3GB", "0GB", "3 GB 4", "1e9"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not an amount of memory"):
        gpu_memory(text)


@pytest.mark.parametrize("text", ["80MB", "1.5", "1GiB", "800k"])
def test_a_gpu_with_less_memory_than_cuda_takes_is_a_slip_of_the_unit(text: str) -> None:
    with pytest.raises(UsageError, match=f"--gpu '{text}' is .* CUDA alone takes 1.5.*80GB"):
        gpu_memory(text)
    assert gpu_memory("2GB") == 2 * GIB


@pytest.mark.parametrize("text", ["80TB", "81559", "9" * 400])
def test_more_memory_than_any_gpu_has_is_a_slip_of_the_unit(text: str) -> None:
    with pytest.raises(UsageError, match=f"--gpu '{text}' is more memory than any GPU has.*80GB"):
        gpu_memory(text)


def device(gib: float) -> Device:
    return Device("cuda", round((gib + 1.5) * GIB))


@pytest.mark.parametrize(
    ("gib", "expected"),
    [
        (4 + 82, ("none", 8, 8)),  # 8 sequences of 1,000 tokens take 8 * 10 * 1,000 MiB = 78.1 GiB
        (4 + 40, ("none", 4, 8)),
        (4 + 10, ("none", 1, 8)),
        (4 + 9, ("full", 4, 8)),  # 2 MiB a token: the inputs of ten layers, and one layer
        (4 + 5, ("full", 2, 6)),
        (4 + 2.1, ("full", 1, 3)),
        (4 + 1.9, ("offload", 1, 2)),  # 1.2 MiB a token: one layer, and the inputs of two
    ],
)
def test_recomputation_is_the_last_resort_and_batches_are_as_large_as_they_can_be(
    gib: float, expected: tuple[str, int, int]
) -> None:
    chosen = best_fit(MODEL, Job(1000, 8), device(gib))
    assert chosen is not None
    assert (chosen.checkpointing, chosen.micro_batch, chosen.decoded) == expected
    assert max(chosen.update, chosen.rollout) <= device(gib).usable
    assert chosen.host == (1000 * 10 * MIB // 10 if chosen.checkpointing == "offload" else 0)


def test_what_cannot_fit_has_no_settings() -> None:
    assert best_fit(MODEL, Job(1000, 8), device(4 + 1.1)) is None
    assert best_fit(MODEL, Job(1000, 8), Device("cpu", round((4 + 1.9 + 0.75) * GIB))) is None
    assert best_fit(MODEL, Job(1000, 8), device(1)) is None


def test_the_largest_context_and_group_are_the_last_that_fit() -> None:
    memory = device(4 + 10)
    context = largest_context(MODEL, Job(1000, 8), memory, limit=10**6)
    assert Job(context, 8).rollout(MODEL, 8, "cuda") <= memory.usable < Job(context + 1, 8).rollout(MODEL, 8, "cuda")
    assert largest_context(MODEL, Job(1000, 8), memory, limit=64) == 64
    group = largest_group(MODEL, Job(1000, 8), memory)
    assert Job(1000, 8).rollout(MODEL, group, "cuda") <= memory.usable < Job(1000, 8).rollout(MODEL, group + 1, "cuda")
    assert largest_group(MODEL, Job(1000, 8), device(5)) == 0


def test_an_engine_with_weights_of_its_own_takes_them_unless_they_are_shared() -> None:
    own = Job(1000, 8, engine="vllm").rollout(MODEL, 8, "cuda")
    assert own - Job(1000, 8, engine="vllm", shared=True).rollout(MODEL, 8, "cuda") == GIB
    assert Job(1000, 8).rollout(MODEL, 8, "cuda") == own - GIB
    assert Job(1000, 8).rollout(MODEL, 8, "cpu") == own - GIB
    single = replace(MODEL, itemsize=4, weights=2 * GIB)  # in float32, which a CPU lays out for decoding
    assert Job(1000, 8).rollout(single, 8, "cpu") == Job(1000, 8).rollout(single, 8, "cuda") + 2 * GIB


def test_this_machine_has_some_memory() -> None:
    assert 2**28 < budget.this_device().usable < 2**50


def test_a_run_that_does_not_exist_is_not_looked_for_on_the_hub(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    for name in ("config.json", "versions.json"):
        (tmp_path / "first" / name).write_text("{}", encoding="utf-8")
    code, out, err = grpo("plan", "--model", str(tmp_path / "frist"), "--gpu", "24")
    assert (code, out) == (2, "")
    assert f"there is no run or model '{tmp_path / 'frist'}'. Did you mean 'first'?" in err


@pytest.mark.slow
def test_the_plan_of_a_built_in_model_needs_no_network_and_proposes_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--model", "Llama-3.1-8B", "--context", "20480", "--lora", "16", "--gpu", "80GB"]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, out, err = grpo("plan", *words)
    assert (code, err) == (0, "")
    for line in ("all logits", "78.3", "2.5", "fits:", "--set train.checkpointing=full", "largest context"):
        assert line in out
    found = json.loads(grpo("plan", *words, "--json").stdout)
    assert found["parameters"] == 8_030_261_248
    assert found["settings"]["checkpointing"] == "full"
    assert found["largest_context"] > 20480


@pytest.mark.slow
def test_the_plan_of_a_model_for_several_gpus_says_nothing_of_what_one_of_them_decodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, out, err = grpo("plan", "--model", "Llama-3.1-8B", "--gpu", "80GB")
    assert (code, err) == (0, "")
    assert "such GPUs hold it" in out
    assert "decoded at once" not in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--dtype", "float16"], "too small for float16"),
        (["--model", "Qwen2.5-7B", "--env", "gsm8"], "Did you mean 'gsm8k'?"),
        (["--bits", "4"], "would do nothing without an adapter. Add --lora"),
        (["--gpu", "large"], "is not an amount of memory"),
        (["--gpu", ""], "is not an amount of memory"),
        (["--model", "./nothing"], "cannot load the configuration of './nothing'"),
        (["--share-weights"], "it is for vLLM in this process"),
        (["--gpu", "80000000000"], "A bare number is GB"),
        (["--micro-batch-size", "7"], "Choose one of 1, 2, 4"),
        (["--lora", "0"], "--lora-rank: "),
        (["--context", "4096"], "over the model's own 2048"),
        (["--prompts-per-step", "100000000"], "1,000,000 is the most"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(words: list[str], says: str) -> None:
    code, _, err = grpo("plan", *words)
    assert code == 2
    assert says in err


def test_a_plan_warns_of_the_numbers_that_a_run_warns_of() -> None:
    code, _, err = grpo("plan", "--model", "Qwen2.5-7B", "--gpu", "80", "--lora", "4096", "--lr", "1")
    assert code == 0
    assert "note: a LoRA rank of 4096 is over the model's hidden size" in err
    assert "note: a learning rate of 1 is " in err


def test_settings_are_written_as_set_takes_them() -> None:
    assert budget.pairs(Fit("none", 4, 8, 1, 1)) == ["train.micro_batch_size=4", "rollout.batch_size=8"]
    assert budget.pairs(Fit("full", 1, 2, 1, 1))[0] == "train.checkpointing=full"
    assert budget.pairs(Fit("offload", 1, 2, 1, 1))[0] == "train.checkpointing=offload"


def test_a_command_of_run_is_a_command_of_plan() -> None:
    words = ["--env", "arithmetic:size=20", "--reward", "proximity", "--steps", "3", "--eval-size", "5", "--gpu", "24"]
    words += ["--max-completion-length", "100"]
    code, out, err = grpo("plan", *words)
    assert (code, err) == (0, "")
    assert "GPU with 24.0 GiB" in out
    (tokens,) = re.findall(r"8 completions of up to (\d+) tokens", out)
    assert 110 < int(tokens) < 300, "the longest prompt of the rows and the completion"
    short = grpo("plan", *words, "--context", "150", "--lora", "4").stdout
    assert "up to 150 tokens" in short
    assert "LoRA of rank 4" in short


def test_settings_that_were_given_are_kept_and_told_where_they_do_not_fit() -> None:
    job, memory = Job(1000, 8), device(20)
    free = best_fit(MODEL, job, memory)
    assert free is not None
    kept = best_fit(MODEL, job, memory, Given("full", 1, 1))
    assert kept is not None
    assert (kept.checkpointing, kept.micro_batch, kept.decoded) == ("full", 1, 1)
    assert best_fit(MODEL, job, device(5.5), Given(micro_batch=8)) is None


@pytest.mark.slow
def test_the_copy_for_a_server_is_in_the_table_of_a_machine_and_a_note_beside_a_gpu() -> None:
    words = ["--model", "Llama-3.1-8B", "--context", "512", "--rollout", "vllm-server", "--set", "train.dtype=bfloat16"]
    code, _, err = grpo("plan", *words, "--gpu", "80GB")
    assert code == 0
    assert "15.0 GiB of host memory, here and there (rollout.weight_sync=everything does without)" in " ".join(
        err.split()
    )
    _, _, silent = grpo("plan", *words, "--gpu", "80GB", "--set", "rollout.weight_sync=everything")
    assert "host memory" not in silent
    _, out, _ = grpo("plan", *words)
    assert re.search(r"weights last sent +15\.0", out)
