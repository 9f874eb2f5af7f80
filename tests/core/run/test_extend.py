"""Runs that are made longer, and runs that begin with what another one has trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from made_run import made_run

import grpo
from grpo.core.cli.main import cli
from grpo.core.config.schema import RunConfig, parse_config
from grpo.core.config.sections import LoraSection
from grpo.core.policy.embedded import embedded_model_path
from grpo.core.policy.load import add_lora, load_model
from grpo.core.policy.weights import find_weights, load_weights, training_source
from grpo.core.record.checkpoint import damage
from grpo.core.run.continuing import refuse_steps
from grpo.plugins.errors import UsageError


def small(out: Path, **settings: Any) -> Any:
    train = {"group_size": 4, "prompts_per_step": 2, **settings.pop("train", {})}
    return grpo.train(
        env="gsm8k", rewards=["proximity"], out=out, quiet=True, evaluation={"size": 0}, train=train, **settings
    )


def weights_of(run: Any) -> bytes:
    [file] = (run.path / "model").glob("*model.safetensors")
    return bytes(file.read_bytes())


@pytest.mark.parametrize(
    ("steps", "done", "over", "fault"),
    [
        (60, 60, True, "has all of its 60 steps, so --steps 60 leaves nothing to do"),
        (40, 60, False, "has a checkpoint of step 60"),
        (90, 0, True, r"Start a new run from its model: grpo run --model runs/a --steps 30"),
        (61, 60, True, "not a multiple of loss.num_iterations 2"),
    ],
)
def test_steps_that_a_run_cannot_be_continued_to_are_refused(steps: int, done: int, over: bool, fault: str) -> None:
    before = parse_config({"env": "gsm8k", "train": {"steps": 60}, "loss": {"num_iterations": 2}})
    with pytest.raises(UsageError, match=fault):
        refuse_steps(before, steps, done, over=over, path=Path("runs/a"))


@pytest.mark.slow
def test_a_run_whose_reward_has_another_name_by_now_says_which_release_had_it(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", rewards=["closer"])
    lock = {"kind": "reward", "plugin": "closer", "distribution": "grpo-reward-closer", "distribution_version": "1.0"}
    run.versions.write_text(json.dumps({"plugins": {"reward closer": lock}}))
    began = (
        r"The run began with grpo-reward-closer 1\.0 \(none is installed now\); `pip install grpo-reward-closer==1\.0`"
    )
    with pytest.raises(UsageError, match=rf"^{began} continues it as it was\. As it is now: no reward 'closer'\."):
        grpo.train(resume=run.path, quiet=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [pytest.param({}, id="full", marks=pytest.mark.nightly), pytest.param({"lora": {"enabled": True}}, id="lora")],
)
def test_a_run_that_is_made_longer_is_the_run_that_was_asked_for_all_steps_at_once(
    how: dict[str, Any], tmp_path: Path
) -> None:
    whole = small(tmp_path / "whole", train={"steps": 3}, **how)
    first = small(tmp_path / "first", train={"steps": 2}, **how)
    longer = grpo.train(resume=first, steps=3, quiet=True)
    assert (longer.status, longer.step) == ("done", 3)
    assert weights_of(longer) == weights_of(whole)
    assert list(longer.metrics["reward"]) == list(whole.metrics["reward"])
    assert json.loads((longer.path / "config.json").read_text())["train"]["steps"] == 3
    with pytest.raises(UsageError, match=r"is complete: it has all 3 steps .*grpo.train\(resume=.*, steps=6\)"):
        grpo.train(resume=longer, quiet=True)

    # Killed between its model and the note that it is done:
    state = json.loads((longer.path / "state.json").read_text())
    (longer.path / "state.json").write_text(json.dumps({**state, "status": "running", "step": 0}))
    for lost in ("reward.png", "model/complete.json"):
        (longer.path / lost).unlink()
    finished = grpo.train(resume=longer, quiet=True)
    assert (finished.status, finished.step) == ("done", 3)
    assert json.loads((longer.path / "state.json").read_text())["status"] == "done"
    assert damage(longer.path / "model") is None
    for made in ("reward.png", "model/complete.json"):
        assert (longer.path / made).is_file()
    assert weights_of(finished) == weights_of(whole)
    with pytest.raises(UsageError, match="is complete"):
        grpo.train(resume=finished, quiet=True)


@pytest.mark.slow
def test_what_differs_in_a_longer_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = small(tmp_path / "run", train={"steps": 1, "lr_schedule": "linear"})
    grpo.train(resume=run, steps=2, quiet=True)
    told = capsys.readouterr().err
    assert "schedule 'linear' of 1 steps until step 1, and follows that of 2 from there" in told
    assert "Otherwise it is the same as a run that was started with 2 steps." in told


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [pytest.param({}, id="full", marks=pytest.mark.nightly), pytest.param({"lora": {"enabled": True}}, id="lora")],
)
def test_a_run_begins_with_what_another_has_trained_and_needs_it_no_more(how: dict[str, Any], tmp_path: Path) -> None:
    import torch

    from grpo.core.policy.weights import load_weights

    first = small(tmp_path / "a", train={"steps": 2}, **how)
    assert training_source(str(first.path)).embedded
    trained = load_weights(find_weights(str(first.path)))
    merged = trained.merge_and_unload() if how else trained
    expected = {name: value.clone() for name, value in merged.state_dict().items()}
    second = small(tmp_path / "b", train={"steps": 1}, model=first, **how)
    base = load_weights(find_weights(str(second.path / "base"))).state_dict()
    assert expected.keys() == base.keys()
    assert all(torch.allclose(expected[name], base[name], atol=1e-6) for name in base)
    assert json.loads((second.path / "base" / "origin.json").read_text())["trained"] == "a, step 2"

    shutil.rmtree(first.path)
    moved = second.path.rename(tmp_path / "moved")  # its own weights are found where the run is
    longer = grpo.train(resume=moved, steps=2, quiet=True)
    assert longer.status == "done"
    assert find_weights(str(moved)).embedded


@pytest.mark.slow
def test_an_adapter_that_no_run_made_is_merged_and_trained_on(tmp_path: Path) -> None:
    import torch

    adapter = tmp_path / "adapter"
    base = load_model(str(embedded_model_path()), "float32")
    policy = add_lora(base, LoraSection(enabled=True, rank=2, targets=("q_proj", "v_proj")))
    for parameter in policy.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.02)
    policy.save_pretrained(adapter)
    settings = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(
        json.dumps(settings | {"base_model_name_or_path": str(embedded_model_path())})
    )
    run = small(tmp_path / "run", train={"steps": 1}, model=str(adapter), lora=True, beta=0.1)
    assert run.status == "done"
    expected = {name: value.clone() for name, value in policy.merge_and_unload().state_dict().items()}
    begun = load_weights(find_weights(str(run.path / "base"))).state_dict()
    assert all(torch.allclose(expected[name], begun[name], atol=1e-6) for name in begun)
    export = CliRunner().invoke(cli, ["export", str(adapter), str(tmp_path / "out"), "--merge"])
    assert export.exit_code == 0, export.output
    written = load_weights(find_weights(str(tmp_path / "out"))).state_dict()
    assert all(torch.allclose(expected[name], written[name], atol=1e-6) for name in written)


def test_a_run_begins_with_the_model_that_is_named() -> None:
    assert not training_source("some/model").embedded
    assert training_source(RunConfig(env="gsm8k").model).embedded
