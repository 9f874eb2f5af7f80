"""Trackers show one chart for each run, also for one that was resumed, under the name that it was given."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import grpo
from grpo.plugins.errors import UsageError

pytestmark = [pytest.mark.slow, pytest.mark.trackers]


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Gives where W&B writes its files, of which nothing is sent."""
    import wandb

    for name in ("WANDB_PROJECT", "WANDB_NAME", "WANDB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"MODE": "offline", "DIR": str(tmp_path), "SILENT": "true"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    yield tmp_path / "wandb"
    wandb.teardown()  # it reads its variables once in a process


def charts(folder: Path) -> list[str]:
    """Returns the ids of the charts that were written, the oldest first."""
    files = sorted(folder.glob("offline-run-*/run-*.wandb"), key=lambda file: file.stat().st_mtime_ns)
    return [file.stem.removeprefix("run-") for file in files]


def kept_id(run: Path) -> str:
    return str(json.loads((run / "wandb.json").read_text())["id"])


def short(model: Path, out: Path, **named: Any) -> None:
    train = {"steps": 2, "group_size": 4, "prompts_per_step": 2}
    output = {"report_to": ["wandb"], **named}
    rollout = {"max_completion_length": 4}
    grpo.train(
        "gsm8k:dataset=embedded",
        "proximity",
        model=str(model),
        out=out,
        quiet=True,
        evaluation={"size": 0},
        train=train,
        output=output,
        rollout=rollout,
    )


def test_a_run_that_goes_on_continues_its_chart_and_the_next_one_has_its_own(
    tiny_model: Path, offline: Path, tmp_path: Path
) -> None:
    import wandb

    short(tiny_model, tmp_path / "one")
    assert wandb.run is None
    grpo.train(resume=tmp_path / "one", steps=3, quiet=True)
    short(tiny_model, tmp_path / "two")
    assert wandb.run is None
    one, two = kept_id(tmp_path / "one"), kept_id(tmp_path / "two")
    assert one != two
    assert charts(offline) == [one, one, two]


def test_a_chart_that_the_user_began_is_used_and_stays_open(tiny_model: Path, offline: Path, tmp_path: Path) -> None:
    import wandb

    with wandb.init(project="mine", id="theirs") as chart:
        short(tiny_model, tmp_path / "run")
        assert wandb.run is chart
        assert "train/reward" in dict(chart.summary)
    assert not (tmp_path / "run" / "wandb.json").exists()
    assert charts(offline) == ["theirs"]


def test_a_chart_has_the_names_of_the_settings_and_a_table_of_rollouts(
    tiny_model: Path, offline: Path, tmp_path: Path
) -> None:
    short(tiny_model, tmp_path / "run", project="sums", run_name="first", run_group="baseline", tags=["small", "cpu"])
    (file,) = offline.glob("offline-run-*/run-*.wandb")
    said = file.read_bytes()
    for word in (b"sums", b"first", b"baseline", b"small", b"cpu"):
        assert word in said
    (table,) = offline.glob("offline-run-*/files/media/table/rollouts_*.json")
    rows = json.loads(table.read_text())
    assert rows["columns"] == ["step", "group", "prompt", "completion", "reward", "advantage", "right"]
    assert len(rows["data"]) == 4  # the best and the worst of two groups


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """MLflow with the store that it has by itself, in a folder of its own."""
    import mlflow

    for name in ("EXPERIMENT_NAME", "EXPERIMENT_ID", "TRACKING_URI", "ALLOW_FILE_STORE"):
        monkeypatch.setenv(f"MLFLOW_{name}", "")  # so that what MLflow sets by itself goes, too
        monkeypatch.delenv(f"MLFLOW_{name}")
    monkeypatch.chdir(tmp_path)
    yield mlflow
    mlflow.set_tracking_uri(None)


def test_mlflow_has_one_run_for_each_of_ours_which_a_longer_one_continues(
    tiny_model: Path, store: Any, tmp_path: Path
) -> None:
    named = {"report_to": ["mlflow"], "project": "sums", "run_name": "first", "run_group": "base", "tags": ["small"]}
    short(tiny_model, tmp_path / "one", **named)
    assert store.active_run() is None
    assert (tmp_path / "mlflow.db").is_file()
    grpo.train(resume=tmp_path / "one", steps=3, quiet=True)
    short(tiny_model, tmp_path / "two", **named)
    experiment = store.get_experiment_by_name("sums")
    client = store.MlflowClient()
    found = {run.info.run_id: run for run in client.search_runs([experiment.experiment_id])}
    one, two = (json.loads((tmp_path / name / "mlflow.json").read_text())["id"] for name in ("one", "two"))
    assert {*found} == {one, two}
    assert found[one].info.run_name == "first"
    assert (found[one].data.tags["group"], found[one].data.tags["small"]) == ("base", "true")
    assert found[one].data.params["train.group_size"] == "4"
    assert [metric.step for metric in client.get_metric_history(one, "reward")] == [1, 2, 3]
    table = store.load_table("rollouts/step-000001.json", run_ids=[one])
    assert len(table) == 4


def test_an_active_run_of_mlflow_is_used_and_stays_open(tiny_model: Path, store: Any, tmp_path: Path) -> None:
    store.set_experiment("theirs")
    with store.start_run() as run:
        short(tiny_model, tmp_path / "run", report_to=["mlflow"])
        assert store.active_run().info.run_id == run.info.run_id
    assert not (tmp_path / "run" / "mlflow.json").exists()
    assert len(store.MlflowClient().get_metric_history(run.info.run_id, "reward")) == 2


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("sqlite:////proc/none/mlflow.db", "No such file or directory"),
        ("file:///tmp/mlruns", "maintenance mode.*MLFLOW_ALLOW_FILE_STORE"),
        ("http://127.0.0.1:9", "Connection refused"),
        ("postgresql://nobody/none", "No module named 'psycopg2'"),
    ],
)
def test_a_store_that_cannot_be_opened_is_refused_before_anything_is_loaded_or_written(
    tiny_model: Path, store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, reason: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(UsageError, match=rf"report_to=... mlflow: .*{re.escape(uri)}.*{reason}.*MLFLOW_TRACKING_URI"):
        short(tiny_model, tmp_path / "run", report_to=["mlflow"])
    assert not (tmp_path / "run").exists()


def test_a_refused_store_tells_no_password(
    tiny_model: Path, store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hunter2@127.0.0.1:9")
    with pytest.raises(UsageError, match=r"http://\(secret\)@127") as refused:
        short(tiny_model, tmp_path / "run", report_to=["mlflow"])
    assert "hunter2" not in str(refused.value)
