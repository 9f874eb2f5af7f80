"""A run from Python: its tables, its curves and its model, of a finished run and of one that has only begun."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import grpo
from grpo.plugins.errors import UsageError

pytestmark = pytest.mark.slow


@pytest.fixture
def run(full_run: Path) -> grpo.Run:
    return grpo.load(full_run)


def test_a_finished_run_tells_how_it_went(run: grpo.Run, full_run: Path) -> None:
    assert (run.path, run.status, run.step) == (full_run, "done", 2)
    assert repr(run).startswith(f"Run('{full_run}', status done, step 2 of 2, reward ")
    assert "continue with" not in run._repr_html_()
    assert run.config.train.group_size == 2


def test_the_settings_of_a_run_that_was_made_longer_are_the_new_ones(full_run: Path, tmp_path: Path) -> None:
    run = grpo.load(shutil.copytree(full_run, tmp_path / "run"))
    assert run.config.train.steps == 2
    config = run.path / "config.json"
    config.write_text(config.read_text().replace('"steps": 2', '"steps": 9'))
    assert run.config.train.steps == 9


def test_metrics_are_a_table_with_a_row_for_each_step(run: grpo.Run) -> None:
    assert list(run.metrics.index) == [0, 1, 2]
    assert run.metrics.loc[0, "held_out/accuracy"] == run.before
    assert run.metrics["reward"].notna().tolist() == [False, True, True]


def test_rollouts_are_read_by_step(run: grpo.Run) -> None:
    rollouts = run.rollouts
    assert (rollouts.steps, len(rollouts)) == ([1, 2], 2)
    assert rollouts[-1].equals(rollouts[2])
    assert len(rollouts[1]) == 4
    assert len(rollouts[:]) == len(rollouts[-9:]) == sum(len(table) for table in rollouts) == 8
    assert set(rollouts[2:]["step"]) == {2}
    first = rollouts[1].iloc[0]
    assert first["prompt"][-1]["role"] == "user"
    assert first["columns"]["question"] == first["prompt"][-1]["content"]
    assert first["score.vowels"] == pytest.approx(first["reward"])
    assert "score.vowels" in rollouts._repr_html_()
    for missing in (3, -3, slice(5, 9)):
        with pytest.raises(UsageError, match="1 to 2"):
            rollouts[missing]


def test_curves_are_a_picture_that_a_notebook_shows_without_pyplot(run: grpo.Run) -> None:
    from matplotlib import pyplot

    pyplot.close("all")
    curves = run.plot()
    assert curves._repr_png_().startswith(b"\x89PNG")
    assert len(curves.axes) == 4
    assert pyplot.get_fignums() == []


def test_the_model_is_loaded_once_and_is_the_trained_one(run: grpo.Run, lora_run: Path) -> None:
    assert run.model is run.model
    assert not run.model.training
    assert run.tokenizer.decode(run.tokenizer("7")["input_ids"]) == "7"
    assert hasattr(grpo.load(lora_run).model, "peft_config")


def test_a_run_that_has_only_begun_has_empty_tables_and_no_model(full_run: Path, tmp_path: Path) -> None:
    for name in ("config.json", "versions.json"):
        shutil.copy(full_run / name, tmp_path / name)
    run = grpo.load(str(tmp_path))
    assert (run.status, run.step, run.before) == ("killed", 0, None)
    assert run.metrics.empty
    assert run.metrics.index.name == "step"
    assert repr(run.rollouts) == "Rollouts(steps none yet)"
    assert "none yet" in run.rollouts._repr_html_()
    assert f"grpo run --resume {tmp_path}" in run._repr_html_()
    assert run.plot()._repr_png_()
    with pytest.raises(UsageError, match="no rollouts"):
        run.rollouts[1]
    with pytest.raises(UsageError, match="no weights yet"):
        _ = run.model


def test_a_run_is_found_again_from_another_folder(full_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(full_run.parent)
    run = grpo.load(full_run.name)
    assert repr(run).startswith(f"Run('{full_run.name}', ")
    monkeypatch.chdir("/")
    assert run.status == "done"


def test_a_folder_that_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run directory"):
        grpo.load(tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        grpo.load(tmp_path / "nothing")
