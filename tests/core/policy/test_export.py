"""What an export writes loads without this project, leaves the trainer's state behind, and is whole or not there."""

from __future__ import annotations

import json
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo.core.config.schema import parse_config
from grpo.core.policy.export import export_weights, refuse_folder
from grpo.core.policy.weights import RunWeights, Weights
from grpo.plugins.errors import RunError, UsageError

STATE = (
    "optimizer.pt",
    "scheduler.pt",
    "rng_state.pth",
    "trainer_state.json",
    "complete.json",
    "ahead.json",
    "ahead-1.json",
    "README.md",
)


def weights(base: Path, folder: Path, adapter: Path | None = None, **train: Any) -> Weights:
    """The weights of a run that stands after its third step."""
    config = parse_config({"env": "gsm8k", "model": str(base), "train": train})
    trained = RunWeights(folder, step=3, steps=5, final=False)
    return Weights("the run", str(base), None if adapter is None else str(adapter), config, False, trained=trained)


def logits(folder: Path, adapter: Path | None = None) -> torch.Tensor:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter)
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=torch.tensor([[5, 9, 17, 3]])).logits.float()
    return found


@pytest.fixture
def checkpoint(tiny_model: Path, tmp_path: Path) -> Path:
    """The model's folder with what a trainer keeps beside it."""
    folder = tmp_path / "checkpoint-3"
    shutil.copytree(tiny_model, folder)
    for name in STATE:
        (folder / name).write_text("{}")
    return folder


@pytest.fixture
def adapter(tiny_model: Path, tmp_path: Path) -> Path:
    """An adapter that changes what the model computes, with its tokenizer, in a checkpoint."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    how = LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(tiny_model), how)
    model.save_pretrained(tmp_path / "adapter")
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path / "adapter")
    for name in STATE:
        (tmp_path / "adapter" / name).write_text("{}")
    return tmp_path / "adapter"


def test_a_model_is_copied_without_the_state_of_its_training(
    tiny_model: Path, checkpoint: Path, tmp_path: Path
) -> None:
    out = export_weights(weights(tiny_model, checkpoint), tmp_path / "out", merge=False)
    assert {file.name for file in out.iterdir()} == {file.name for file in tiny_model.iterdir()}
    assert torch.equal(logits(out), logits(tiny_model))


def test_an_adapter_names_its_base_by_a_path_that_holds_everywhere(
    tiny_model: Path, adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny_model.parent)
    out = export_weights(weights(Path(tiny_model.name), adapter, adapter), tmp_path / "out", merge=False)
    assert json.loads((out / "adapter_config.json").read_text())["base_model_name_or_path"] == str(tiny_model)
    assert not {file.name for file in out.iterdir()} & set(STATE)
    assert torch.equal(logits(tiny_model, out), logits(tiny_model, adapter))


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_a_merged_model_computes_what_base_and_adapter_compute_in_the_dtype_of_the_run(
    tiny_model: Path, adapter: Path, tmp_path: Path, dtype: str | None
) -> None:
    train = {} if dtype is None else {"dtype": dtype}
    out = export_weights(weights(tiny_model, adapter, adapter, **train), tmp_path / "out", merge=True)
    assert not (out / "adapter_config.json").exists()
    expected = logits(tiny_model, adapter)
    assert (expected - logits(tiny_model)).abs().max() > 0.1
    torch.testing.assert_close(logits(out), expected, rtol=0, atol=1e-4 if dtype is None else 0.3)
    kept = json.loads((out / "config.json").read_text())["dtype"]
    assert kept == (dtype or "float32")


def test_an_adapter_with_a_number_that_is_none_is_not_merged(tiny_model: Path, adapter: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = adapter / "adapter_model.safetensors"
    tensors = load_file(file)
    tensors[next(iter(tensors))][0, 0] = float("nan")
    save_file(tensors, file)
    with pytest.raises(RunError, match="cannot merge the adapter of the run"):
        export_weights(weights(tiny_model, adapter, adapter), tmp_path / "out", merge=True)
    assert not (tmp_path / "out").exists()


def test_an_export_that_fails_midway_leaves_nothing(tiny_model: Path, checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "tokenizer.json").unlink()
    (checkpoint / "tokenizer.json").symlink_to("nowhere")
    with pytest.raises(RunError, match=r"out: \[Errno 2\] No such file or directory: '.*'\. Nothing was left there"):
        export_weights(weights(tiny_model, checkpoint), tmp_path / "deep" / "out", merge=False)
    assert not (tmp_path / "deep" / "out").exists()
    assert [path for path in tmp_path.rglob("*") if path.name.startswith("out") or ".tmp" in path.name] == []


def test_a_full_disk_is_told_of_whichever_library_writes(tiny_model: Path, adapter: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands in for the full disk; safetensors raises an error of its own."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(RunError, match=r"cannot write .*File too large.*Nothing was left there"):
            export_weights(weights(tiny_model, adapter, adapter), tmp_path / "out", merge=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "out").exists()


def test_a_folder_is_refused_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").write_text("")
    (tmp_path / "empty").mkdir()
    refuse_folder(tmp_path / "empty")
    refuse_folder(tmp_path / "new" / "deeper")
    for name, reason in (("file", "is a file"), ("full", "is not empty"), ("file/below", "cannot write in")):
        with pytest.raises(UsageError, match=reason):
            refuse_folder(tmp_path / name)
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(UsageError, match="while you stand in it"):
        refuse_folder(Path.cwd())
