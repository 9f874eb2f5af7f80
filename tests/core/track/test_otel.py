"""Spans of steps arrive at a collector with the figures of the metrics; a collector that fails costs no step."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from same_metrics import metrics_of

import grpo
from grpo.core.config.settings import OutputSettings
from grpo.core.monitor.hacking.signals import Suspicion
from grpo.core.record.browse import read_step
from grpo.core.record.run_dir import RunDir, rollout_steps

pytestmark = [pytest.mark.slow, pytest.mark.trackers]


class Collector:
    """A server that keeps what is sent to it.

    Attributes:
        status: what it answers; None: nothing, ever.
        bodies: of the requests.
    """

    def __init__(self) -> None:
        self.status: int | None = 200
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        self.over = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.paths.append(self.path)
                collector.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                if collector.status is None:
                    collector.over.wait()
                    return
                self.send_response(collector.status)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.over.set()
        if self.server.socket.fileno() < 0:
            return
        self.server.shutdown()
        self.server.server_close()

    def spans(self) -> list[tuple[dict[str, Any], Any]]:
        """Returns the attributes of the resource with each span, in the order of their beginning."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        found = []
        for body in self.bodies:
            request = ExportTraceServiceRequest()
            request.ParseFromString(body)
            for group in request.resource_spans:
                resource = values(group.resource.attributes)
                found += [(resource, span) for scope in group.scope_spans for span in scope.spans]
        return sorted(found, key=lambda one: (one[1].start_time_unix_nano, -one[1].end_time_unix_nano))


def values(attributes: Any) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        kind = value.WhichOneof("value")
        return [plain(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)

    return {one.key: plain(one.value) for one in attributes}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    made = Collector()
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.address)
    yield made
    made.close()


def short(model: Path, out: Path, **output: Any) -> None:
    grpo.train(
        "gsm8k:dataset=embedded",
        "proximity",
        model=str(model),
        out=out,
        evaluation={"size": 4, "every": 1},
        train={"steps": 2, "group_size": 4, "prompts_per_step": 2},
        output={"report_to": ["otel"], **output},
        rollout={"max_completion_length": 4},
        quiet=True,
    )


def fail(collector: Collector, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a collector fail, or sends to where none is."""
    if kind == "is absent":
        collector.close()
    elif kind == "is not an address":
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "nowhere")
    else:
        collector.status = {"refuses": 500, "is overloaded": 503}.get(kind)


def sent(
    folder: Path,
    steps: Sequence[int],
    warned: Callable[[str], Any],
    *,
    first: bool = True,
    suspicions: Sequence[Suspicion] = (),
    figures: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Sends spans of steps of two seconds, all of them sampling; the suspicions are of step 1."""
    from transformers import TrainerControl, TrainerState, TrainingArguments

    from grpo.core.track.otel import StepSpans

    arguments = TrainingArguments(output_dir=str(folder), report_to=[])
    with ExitStack() as until:
        spans = StepSpans(OutputSettings(save_every=1), RunDir(folder), warned, until)
        spans.on_train_begin(arguments, TrainerState(is_world_process_zero=first), TrainerControl())
        for step in steps:
            spans.alarms(step, suspicions if step == 1 else ())
            row = {"loss": 0.5, "time/step": 2.0, "time/generate": 2.0, **figures}
            state = TrainerState(is_world_process_zero=first, global_step=step)
            spans.on_log(arguments, state, TrainerControl(), row)


def metrics(run: Path) -> dict[int, dict[str, Any]]:
    rows = metrics_of(run)
    return {row["step"]: row for row in rows}


def seconds(span: Any) -> float:
    return float(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9


def test_a_step_is_a_trace_with_the_times_and_figures_of_the_metrics_and_no_text(
    tiny_model: Path, collector: Collector, tmp_path: Path
) -> None:
    run = tmp_path / "one"
    short(tiny_model, run, project="sums", run_name="first", run_group="baseline", tags=["small", "cpu"])
    grpo.train(resume=run, steps=3, quiet=True)
    assert {*collector.paths} == {"/v1/traces"}
    found, rows = collector.spans(), metrics(run)
    identity = json.loads((run / "otel.json").read_text())["id"]
    for resource, _ in found:  # also those of the resumed run
        assert resource["service.name"] == "grpo"
        assert resource["grpo.run.id"] == resource["service.instance.id"] == identity
        assert (resource["grpo.run.name"], resource["grpo.project"]) == ("first", "sums")
        assert (resource["grpo.run.group"], resource["grpo.run.tags"]) == ("baseline", ["small", "cpu"])
    roots = [span for _, span in found if not span.parent_span_id]
    assert [root.name for root in roots] == ["step 1", "step 2", "step 3"]
    assert len({root.trace_id for root in roots}) == 3
    for step, root in enumerate(roots, start=1):
        row, said = rows[step], values(root.attributes)
        assert said["grpo.step"] == step
        for name in ("reward", "accuracy", "frac_reward_zero_std", "rewards/proximity/failure", "loss"):
            assert said["grpo." + name.replace("/", ".")] == row[name]
        parts = {span.name: span for _, span in found if span.parent_span_id == root.span_id}
        assert {"generate", "score", "record", "update", "evaluation"} <= {*parts}
        for name, metric in {"generate": "generate", "score": "score", "evaluation": "held_out"}.items():
            assert seconds(parts[name]) == pytest.approx(row[f"time/{metric}"], abs=1e-6)
        assert {span.trace_id for span in parts.values()} == {root.trace_id}
        assert sum(map(seconds, parts.values())) == pytest.approx(seconds(root), abs=1e-5)
        for span in parts.values():
            assert root.start_time_unix_nano <= span.start_time_unix_nano
            assert span.end_time_unix_nano <= root.end_time_unix_nano + 1000
    sent = b"".join(collector.bodies)
    for step in rollout_steps(RunDir(run)):
        for rollout in read_step(RunDir(run), step)[1]:
            for text in (rollout.completion, *(str(message["content"]) for message in rollout.prompt)):
                assert len(text) < 4 or text.encode() not in sent


NIGHTLY = [
    pytest.param(kind, marks=pytest.mark.nightly) for kind in ("is overloaded", "is absent", "is not an address")
]


@pytest.mark.parametrize("kind", ["refuses", "never answers", *NIGHTLY])
def test_a_collector_that_fails_stops_no_run(
    tiny_model: Path, collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    fail(collector, kind, monkeypatch)
    monkeypatch.setattr("grpo.core.track.otel.SECONDS", 1.0)
    short(tiny_model, tmp_path / "run")
    assert json.loads((tmp_path / "run" / "state.json").read_text())["status"] == "done"
    assert {*metrics(tmp_path / "run")} == {0, 1, 2}


@pytest.mark.parametrize("kind", ["refuses", "is overloaded", "never answers", "is absent", "is not an address"])
def test_lost_spans_are_one_warning_and_no_line_of_a_log(
    collector: Collector,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: str,
) -> None:
    fail(collector, kind, monkeypatch)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")  # a request for each span
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60" if kind == "never answers" else "0.5")
    monkeypatch.setattr("grpo.core.track.otel.SECONDS", 1.0)  # at the end, also of a request that takes a minute
    warned: list[str] = []
    sent(tmp_path, [1], warned.append)
    sent(tmp_path, [1, 2, 3], warned.append)
    assert len(warned) == 2, warned  # of two runs
    assert warned[0].startswith("--report-to otel: ")
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in warned[0]
    assert {"refuses": "500"}.get(kind, "") in warned[0]
    assert not [one for one in caplog.records if one.name.startswith("opentelemetry")]


def test_sending_draws_nothing_from_the_generator_of_the_run(collector: Collector, tmp_path: Path) -> None:
    before = random.getstate()
    sent(tmp_path, [1, 2], pytest.fail)
    assert random.getstate() == before
    assert len(collector.spans()) == 4


def test_only_the_first_process_sends(collector: Collector, tmp_path: Path) -> None:
    sent(tmp_path, [1], pytest.fail, first=False)
    assert not collector.bodies
    assert not (tmp_path / "otel.json").exists()


def test_alarms_and_canaries_that_drift_are_events_of_their_step(collector: Collector, tmp_path: Path) -> None:
    suspicion = Suspicion("wrong", 1, "what the policy wrote", (3,), "length")
    sent(tmp_path, [1, 2], pytest.fail, suspicions=[suspicion], figures={"canaries/length/drift": 0.5})
    one, two = ([*span.events] for _, span in collector.spans() if not span.parent_span_id)
    assert [event.name for event in one] == ["alarm", "canaries"]
    assert values(one[0].attributes) == {"grpo.alarm.signal": "wrong", "grpo.alarm.reward": "length"}
    assert values(two[0].attributes) == {"grpo.canaries.length.drift": 0.5}
    assert b"what the policy wrote" not in b"".join(collector.bodies)


def test_the_variables_of_the_sdk_name_the_service(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "theirs")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=lab")
    sent(tmp_path, [1], pytest.fail)
    resource, _ = collector.spans()[0]
    assert (resource["service.name"], resource["deployment.environment"]) == ("theirs", "lab")


def test_the_parts_of_a_step_follow_each_other_and_a_handing_over_is_inside_the_sampling() -> None:
    from grpo.core.track.otel import step_spans

    row = {"step": 3, "time/step": 4.0, "time/generate": 2.0, "time/ahead_wait": 0.5, "sync/seconds": 0.25}
    row |= {"time/checkpoint": 1.0, "time/held_out": 3.0}
    now = 100 * 10**9
    (root,) = step_spans(row, now)
    assert [(part.name, (part.start - now) / 1e9, part.seconds) for part in root.parts] == [
        ("checkpoint", -8.0, 1.0),
        ("wait", -7.0, 0.5),
        ("generate", -6.5, 2.0),
        ("update", -4.5, 1.5),
        ("evaluation", -3.0, 3.0),
    ]
    assert [(part.name, part.seconds) for part in root.parts[2].parts] == [("sync", 0.25)]
    assert (root.end, root.parts[-1].end) == (now, now)
    assert step_spans({"step": 0, "held_out/accuracy": 0.5}, now) == []
