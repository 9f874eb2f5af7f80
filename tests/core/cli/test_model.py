"""`grpo generate` and `grpo export` on small finished and unfinished runs; exports load without grpo."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from grpo.core.cli.main import cli
from grpo.core.measure.generate import Example
from grpo.core.policy import weights as weights_module
from grpo.core.record.checkpoint import last_checkpoint
from grpo.core.record.run_dir import RunDir, rollout_steps
from grpo.plugins.errors import RunError, UsageError

QUESTION = "Ann has 3 pens and buys 4 more. How many pens does she have?"


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def succeeded(*arguments: str | Path) -> Result:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.exception
    return result


def logits(model: Any) -> Any:
    import torch

    with torch.no_grad():
        return model(input_ids=torch.arange(5, 25)[None]).logits


@pytest.fixture
def unfinished(lora_run: Path, tmp_path: Path) -> Path:
    """A copy of a run as it was when its first checkpoint had just been written."""
    run = tmp_path / "unfinished"
    shutil.copytree(lora_run, run)
    shutil.rmtree(run / "model")
    shutil.rmtree(run / "checkpoints" / "checkpoint-2")
    return run


def test_the_text_takes_the_place_of_the_question() -> None:
    system = {"role": "system", "content": "Be brief."}
    columns = {"question": "How many pens are there?", "answer": "4", "number": 4}
    cases = [
        ("How many pens are there?", "New?"),
        ("Question: How many pens are there?\nAnswer:", "Question: New?\nAnswer:"),
        ("Say 4.", "New?"),
    ]
    for content, expected in cases:
        example = Example([system, {"role": "user", "content": content}], columns)  # type: ignore[list-item]
        assert example.ask("New?") == [system, {"role": "user", "content": expected}]
    shots = [
        {"role": "user", "content": "1+1"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "x"},
    ]
    assert [m["content"] for m in Example(shots).ask("2+2")] == ["1+1", "2", "2+2"]  # type: ignore[arg-type]
    assert Example([system]).ask("New?") == [system, {"role": "user", "content": "New?"}]  # type: ignore[list-item]
    assert Example().ask("New?") == [{"role": "user", "content": "New?"}]


@pytest.mark.slow
def test_generate_answers_as_the_policy_answered_in_the_run(full_run: Path, tiny_model: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from grpo.core.record.run_dir import read_rollouts
    from grpo.core.text.printable import printable

    prompt = json.loads(read_rollouts(RunDir(full_run), 1)[0]["prompt"])
    prompt[-1]["content"] = QUESTION
    tokenizer = AutoTokenizer.from_pretrained(full_run / "model")
    model = AutoModelForCausalLM.from_pretrained(full_run / "model")
    ids = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.no_grad():
        answer = model.generate(**ids, max_new_tokens=16, do_sample=False)[0, ids["input_ids"].shape[1] :]
    result = succeeded("generate", full_run, "-p", QUESTION)
    assert result.stdout.strip() == printable(tokenizer.decode(answer, skip_special_tokens=True)).strip()
    bare = succeeded("generate", tiny_model, "-p", QUESTION, "--max-new-tokens", "16")
    assert bare.stdout != result.stdout


@pytest.mark.slow
def test_generate_takes_several_prompts_and_several_samples(lora_run: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("One?\n\n Two? \n", encoding="utf-8")
    result = succeeded("generate", lora_run, "-p", "Zero?", "--file", file, "-n", "2", "--max-new-tokens", "4")
    headings = [line for line in result.stdout.splitlines() if line.startswith("--- ")]
    assert headings == ["--- Zero?", "--- One?", "--- Two?"]
    assert result.stdout.count("[2]") == 3
    again = succeeded("generate", lora_run, "-p", "Zero?", "--file", file, "-n", "2", "--max-new-tokens", "4")
    assert again.stdout == result.stdout
    other = succeeded(
        "generate", lora_run, "-p", "Zero?", "--file", file, "-n", "2", "--max-new-tokens", "4", "--seed", "1"
    )
    assert other.stdout != result.stdout


def test_a_model_of_ones_own_can_be_asked_as_an_environment_asks(tiny_model: Path) -> None:
    bare = succeeded("generate", tiny_model, "-p", QUESTION, "--max-new-tokens", "8")
    asked = succeeded("generate", tiny_model, "-p", QUESTION, "--max-new-tokens", "8", "--env", "gsm8k:size=5")
    assert bare.stdout != asked.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no prompt"),
        (["--file", "missing.txt"], "--file missing.txt cannot be read: No such file"),
        (["--file", "empty.txt"], "holds no prompts"),
        (["-p", "x", "-n", "3", "--temperature", "0"], "3 equal completions"),
        (["-p", "word " * 2000], "over the model's context of 1024"),
        (["-p", "x", "--max-new-tokens", "2000"], "Lower --max-new-tokens to"),
        (["-p", "x", "--env", "gsm8"], "Did you mean 'gsm8k'"),
    ],
)
def test_generate_refuses_bad_input_before_a_model_loads(
    arguments: list[str], message: str, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loading(*_: Any, **__: Any) -> Any:
        raise AssertionError("it loaded a model")

    (tmp_path / "empty.txt").write_text("\n\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(weights_module, "load_policy", loading)
    result = invoke("generate", tiny_model, *arguments)
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)


@pytest.mark.slow
def test_an_exported_model_loads_with_plain_transformers(full_run: Path, tmp_path: Path) -> None:
    result = succeeded("export", full_run, tmp_path / "out")
    assert "AutoModelForCausalLM.from_pretrained" in result.stdout
    script = (
        "import sys\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n"
        "ours, theirs = sys.argv[1:]\n"
        "model, same = (AutoModelForCausalLM.from_pretrained(f) for f in (ours, theirs))\n"
        "tokenizer = AutoTokenizer.from_pretrained(ours)\n"
        "ids = tokenizer('pens', return_tensors='pt')\n"
        "assert (model(**ids).logits == same(**ids).logits).all()\n"
        "assert not any(name.startswith('grpo') for name in sys.modules)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "out"), str(full_run / "model")]
    assert subprocess.run(command, cwd=tmp_path).returncode == 0


@pytest.mark.core
def test_an_exported_adapter_loads_with_peft_and_merges_to_the_same_logits(
    lora_run: Path, tiny_model: Path, tmp_path: Path
) -> None:
    import torch
    from peft import AutoPeftModelForCausalLM, PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    adapter, plain = tmp_path / "adapter", tmp_path / "deep" / "plain"
    succeeded("export", lora_run, adapter)
    succeeded("export", lora_run, plain, "--merge")
    base = AutoModelForCausalLM.from_pretrained(tiny_model)
    before = logits(base)
    trained = logits(PeftModel.from_pretrained(base, adapter))
    assert not torch.allclose(before, trained, atol=1e-3)
    torch.testing.assert_close(logits(AutoPeftModelForCausalLM.from_pretrained(adapter)), trained)
    torch.testing.assert_close(logits(AutoModelForCausalLM.from_pretrained(adapter)), trained)
    torch.testing.assert_close(logits(AutoModelForCausalLM.from_pretrained(plain)), trained, atol=1e-4, rtol=1e-4)
    assert not (plain / "adapter_config.json").exists()
    for folder in (adapter, plain):
        assert AutoTokenizer.from_pretrained(folder).chat_template


@pytest.mark.slow
def test_an_adapter_of_the_embedded_model_brings_its_base_along(
    lora_run: Path, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoModelForCausalLM

    # The tiny model stands in for the embedded one, so that the test needs no weights of the package.
    monkeypatch.setattr("grpo.core.policy.load.embedded_model_path", lambda: tiny_model)
    run = tmp_path / "run"
    shutil.copytree(lora_run, run)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "model": None}))
    result = succeeded("export", run, tmp_path / "out")
    named = json.loads((tmp_path / "out" / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert Path(named) == tmp_path / "out" / "base"
    assert str(tmp_path / "out" / "base") in result.stdout
    trained = logits(AutoPeftModelForCausalLM.from_pretrained(tmp_path / "out"))
    assert (logits(AutoModelForCausalLM.from_pretrained(lora_run / "model")) == trained).all()
    # grpo finds the base beside the adapter, also after the folder has moved.
    (tmp_path / "out").rename(tmp_path / "moved")
    succeeded("generate", tmp_path / "moved", "-p", "x", "--max-new-tokens", "2")


@pytest.mark.slow
def test_an_unfinished_run_gives_its_last_whole_checkpoint_and_says_so(unfinished: Path, tmp_path: Path) -> None:
    broken = unfinished / "checkpoints" / "checkpoint-9"
    shutil.copytree(unfinished / "checkpoints" / "checkpoint-1", broken)
    (broken / "complete.json").unlink()
    result = succeeded("export", unfinished, tmp_path / "out")
    assert "is not finished: these are the weights after step 1 of 2" in result.stderr
    checkpoint = last_checkpoint(RunDir(unfinished))
    assert checkpoint is not None
    assert checkpoint.name == "checkpoint-1"
    weights = "adapter_model.safetensors"
    assert (tmp_path / "out" / weights).read_bytes() == (checkpoint / weights).read_bytes()
    assert not {"optimizer.pt", "trainer_state.json", "training_args.bin", "complete.json", "rng_state.pth"} & {
        file.name for file in (tmp_path / "out").iterdir()
    }
    note = succeeded("generate", unfinished, "-p", "x", "--max-new-tokens", "2").stderr
    assert "after step 1 of 2" in note


@pytest.mark.slow
def test_a_run_that_stopped_before_its_first_step_is_asked_through_its_environment(unfinished: Path) -> None:
    usual = succeeded("generate", unfinished, "-p", QUESTION, "--max-new-tokens", "8").stdout
    for step in rollout_steps(RunDir(unfinished)):
        (unfinished / "rollouts" / f"step-{step:06d}.parquet").unlink()
    assert succeeded("generate", unfinished, "-p", QUESTION, "--max-new-tokens", "8").stdout == usual


@pytest.mark.slow
def test_merging_a_run_without_an_adapter_says_that_there_is_none(full_run: Path, tmp_path: Path) -> None:
    assert "no adapter to merge" in succeeded("export", full_run, tmp_path / "out", "--merge").stderr
    assert (tmp_path / "out" / "model.safetensors").is_file()


@pytest.mark.slow
def test_export_refuses_folders_that_it_would_harm(
    lora_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, file, here = tmp_path / "full", tmp_path / "file", tmp_path / "here"
    full.mkdir()
    (full / "mine.txt").write_text("keep me")
    file.write_text("keep me")
    here.mkdir()
    monkeypatch.chdir(here)
    cases = {full: "is not empty", file: "is a file", Path(): "the current folder", file / "below": "cannot write in"}
    for folder, message in cases.items():
        result = invoke("export", lora_run, folder)
        assert isinstance(result.exception, UsageError)
        assert message in str(result.exception)
    assert (full / "mine.txt").read_text() == file.read_text() == "keep me"
    empty = tmp_path / "empty"
    empty.mkdir()
    succeeded("export", lora_run, empty)
    assert (empty / "adapter_config.json").is_file()


@pytest.mark.slow
def test_an_export_that_fails_leaves_nothing_behind(
    lora_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copytree", full_disk)
    result = invoke("export", lora_run, tmp_path / "out")
    assert isinstance(result.exception, RunError)
    assert "No space left on device" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_export_of_what_is_no_run_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    result = invoke("export", tiny_model, tmp_path / "out")
    assert isinstance(result.exception, UsageError)
    assert "is not a run directory" in str(result.exception)
