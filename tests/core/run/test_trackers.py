"""Trackers show one chart for each run, also for one that was resumed, under the name that it was given."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import grpo

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
    output = {"report_to": ["wandb"]} | named
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
    """MLflow with a store of its own."""
    import mlflow

    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # its database takes packages that a client does without
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    yield mlflow
    mlflow.set_tracking_uri(before)


@pytest.mark.filterwarnings("ignore::FutureWarning:mlflow")
def test_mlflow_has_one_run_for_each_of_ours_which_a_longer_one_continues(
    tiny_model: Path, store: Any, tmp_path: Path
) -> None:
    named = {"report_to": ["mlflow"], "project": "sums", "run_name": "first", "run_group": "base", "tags": ["small"]}
    short(tiny_model, tmp_path / "one", **named)
    assert store.active_run() is None
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


@pytest.mark.filterwarnings("ignore::FutureWarning:mlflow")
def test_an_active_run_of_mlflow_is_used_and_stays_open(tiny_model: Path, store: Any, tmp_path: Path) -> None:
    store.set_experiment("theirs")
    with store.start_run() as run:
        short(tiny_model, tmp_path / "run", report_to=["mlflow"])
        assert store.active_run().info.run_id == run.info.run_id
    assert not (tmp_path / "run" / "mlflow.json").exists()
    assert len(store.MlflowClient().get_metric_history(run.info.run_id, "reward")) == 2


class Collector(ThreadingHTTPServer):
    """Takes spans as a collector does; `status` is what it answers."""

    daemon_threads = True

    def __init__(self, status: int = 200, seconds: float = 0.0) -> None:
        super().__init__(("127.0.0.1", 0), _Taker)
        self.status, self.seconds = status, seconds
        self.resources: list[Any] = []

    def spans(self) -> list[Any]:
        return [span for one in self.resources for scope in one.scope_spans for span in scope.spans]


class _Taker(BaseHTTPRequestHandler):
    server: Collector

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def do_POST(self) -> None:
        import gzip

        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        body = self.rfile.read(int(self.headers["Content-Length"]))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        time.sleep(self.server.seconds)
        if self.server.status == 200:
            self.server.resources += ExportTraceServiceRequest.FromString(body).resource_spans
        self.send_response(self.server.status)
        self.end_headers()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Collector]]:
    """Starts collectors; runs send their spans to the last one."""
    started: list[Collector] = []

    def start(**options: Any) -> Collector:
        found = Collector(**options)
        started.append(found)
        threading.Thread(target=found.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{found.server_address[1]}")
        return found

    yield start
    for one in started:
        one.shutdown()
        one.server_close()


def values(attributes: Any) -> dict[str, Any]:
    found = {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
    return {key: value for key, value in found.items() if not hasattr(value, "values")}


def test_each_step_is_a_trace_of_its_parts_and_a_resumed_run_keeps_its_id(
    tiny_model: Path, collector: Callable[..., Collector], tmp_path: Path
) -> None:
    taken = collector()
    named = {"project": "sums", "run_name": "first", "run_group": "baseline", "tags": ["small"]}
    short(tiny_model, tmp_path / "one", report_to=["otel"], **named)
    grpo.train(resume=tmp_path / "one", steps=3, quiet=True)
    spans = taken.spans()
    steps = [span for span in spans if span.name == "step"]
    assert [values(span.attributes)["grpo.step"] for span in steps] == [1, 2, 3]
    assert all(not span.parent_span_id for span in steps)
    assert len({span.trace_id for span in steps}) == 3
    rows = [json.loads(line) for line in (tmp_path / "one" / "metrics.jsonl").read_text().splitlines()]
    for span, row in zip(steps, rows, strict=True):
        inside = {one.name: one for one in spans if one.parent_span_id == span.span_id}
        assert {"generate", "score", "update"} <= inside.keys()
        seconds = {name: (one.end_time_unix_nano - one.start_time_unix_nano) / 1e9 for name, one in inside.items()}
        assert seconds["generate"] == pytest.approx(row["time/generate"], abs=1e-3)
        whole = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
        assert sum(seconds.values()) == pytest.approx(whole, abs=1e-3)
        assert min(one.start_time_unix_nano for one in inside.values()) >= span.start_time_unix_nano
        assert values(span.attributes)["grpo.reward"] == pytest.approx(row["reward"])
    resources = [values(one.resource.attributes) for one in taken.resources]
    assert {one["service.name"] for one in resources} == {"grpo"}
    assert {(one["grpo.project"], one["grpo.run.name"], one["grpo.run.group"]) for one in resources} == {
        ("sums", "first", "baseline")
    }
    assert {one["grpo.run.id"] for one in resources} == {json.loads((tmp_path / "one" / "otel.json").read_text())["id"]}


@pytest.mark.parametrize("options", [{"status": 500}, {"seconds": 30.0}, None], ids=["fails", "hangs", "absent"])
def test_a_collector_that_does_not_take_spans_costs_a_run_nothing_but_these(
    tiny_model: Path,
    collector: Callable[..., Collector],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any] | None,
) -> None:
    if options is None:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    else:
        collector(**options)
    short(tiny_model, tmp_path / "run", report_to=["otel"])
    assert json.loads((tmp_path / "run" / "state.json").read_text())["status"] == "done"
