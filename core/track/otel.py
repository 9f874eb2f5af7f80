"""Exports a run's steps as OpenTelemetry traces by OTLP over HTTP, one trace for each step.

Spans have the durations of core/timing/timeline.py and no text of a prompt or completion. A batch processor's thread
sends them: a slow, absent or broken collector costs no step any time, its spans are dropped, and one warning says so.
"""

from __future__ import annotations

import logging
import math
import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from transformers import TrainerCallback, TrainerState

from grpo.core.config.settings import OutputSettings
from grpo.core.monitor.hacking.signals import Suspicion
from grpo.core.record.run_dir import RunDir
from grpo.core.text.printable import one_line
from grpo.core.timing.timeline import (
    CALLS,
    CANARIES,
    CHECKPOINTS,
    HELD_OUT,
    RECORDS,
    SAMPLING,
    SCORING,
    UPDATE,
    WAITING,
    timeline,
)
from grpo.core.track.trackers import kept_id
from grpo.core.train.callbacks import metrics_row
from grpo.core.train.trl_arguments import PROJECT

SERVICE = "grpo"
SECONDS = 5.0  # that a request may take, unless the SDK's own variables say, and that the end of a run waits at most
TIMEOUTS = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
PARTS = {  # of the timeline in the order in which they happen, and what their spans are called
    CHECKPOINTS: "checkpoint",  # the one that was written before the step
    WAITING: "wait",
    SAMPLING: "generate",
    SCORING: "score",
    RECORDS: "record",
    CANARIES: "canaries",
    UPDATE: "update",
    HELD_OUT: "evaluation",
}
FIGURES = 100  # of a step that are attributes; the SDK keeps 128 of a span
NANO = 1_000_000_000
EXPORT_LOG = logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter")
_here = threading.local()


class StepSpans(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """Sends spans, from the first process, where the SDK's variables say; `run` keeps the id, `until` ends it."""

    def __init__(self, output: OutputSettings, run: RunDir, warned: Callable[[str], None], until: ExitStack) -> None:
        self._output = output
        self._run_dir = run
        self._warned = warned
        self._until = until
        self._exporter: _Exporter | None = None
        self._tracer: Any = None
        self._alarms: dict[int, list[dict[str, str]]] = {}

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **rest: Any) -> None:
        if not state.is_world_process_zero or self._tracer is not None:
            return
        try:
            self._exporter = _Exporter()
            provider = TracerProvider(resource=self._resource(), shutdown_on_exit=False, id_generator=_Ids())
            provider.add_span_processor(BatchSpanProcessor(self._exporter))
        except Exception as error:  # a variable that the SDK does not understand
            self._warned(f"--report-to otel: no spans are sent: {type(error).__name__}: {one_line(str(error))}.")
            return
        self._until.callback(self._close, provider, self._exporter)
        self._tracer = provider.get_tracer("grpo")

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Any = None, **rest: Any) -> None:
        if self._tracer is not None and logs and "loss" in logs:
            row = metrics_row(state.global_step, logs)
            for span in step_spans(row, time.time_ns(), self._alarms.pop(state.global_step, [])):
                _make(self._tracer, span)
            self._look()

    def alarms(self, step: int, suspicions: Sequence[Suspicion]) -> None:
        """Notes the alarms for reward hacking of a step, as its events; their texts stay in the run directory."""
        self._alarms[step] = [
            {"grpo.alarm.signal": suspicion.signal, "grpo.alarm.reward": suspicion.reward} for suspicion in suspicions
        ]

    def _resource(self) -> Any:
        named = {
            "service.instance.id": (identity := kept_id(self._run_dir.otel, lambda: uuid4().hex)),
            "grpo.run.id": identity,
            "grpo.run.name": self._output.run_name or self._run_dir.path.name,
            "grpo.project": self._output.project or PROJECT,
            **({"grpo.run.group": self._output.run_group} if self._output.run_group else {}),
            **({"grpo.run.tags": list(self._output.tags)} if self._output.tags else {}),
        }
        resource = Resource.create(named)
        if str(resource.attributes["service.name"]).startswith("unknown_service"):  # no variable names it
            resource = resource.merge(Resource({"service.name": SERVICE}))
        return resource

    def _look(self) -> None:
        """Says once, from the thread of the run, that spans are lost."""
        if self._exporter is not None and (reason := self._exporter.lost()):
            self._warned(
                f"--report-to otel: the collector did not take the spans of steps ({one_line(reason)}). The run goes "
                "on without those; the next ones are tried again. See OTEL_EXPORTER_OTLP_ENDPOINT, http://localhost:"
                "4318 when it is not set."
            )

    def _close(self, provider: Any, exporter: _Exporter) -> None:
        ending = threading.Thread(target=provider.shutdown, name="grpo-spans-end", daemon=True)
        ending.start()
        ending.join(SECONDS)
        if ending.is_alive():
            exporter.give_up(f"no answer within {SECONDS:.0f} s at the end of the run")
        self._tracer = None
        self._look()


@dataclass(slots=True)
class Span:
    """A span to be made."""

    name: str
    start: int  # nanoseconds since the epoch
    seconds: float
    attributes: dict[str, Any] = field(default_factory=dict)
    parts: list[Span] = field(default_factory=list)
    events: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    @property
    def end(self) -> int:
        """Nanoseconds since the epoch."""
        return self.start + round(self.seconds * NANO)


def step_spans(row: Mapping[str, Any], now: int, alarms: Sequence[Mapping[str, str]] = ()) -> list[Span]:
    """Returns the span of a step that was measured until `now` (ns), with its parts; none of a row without a time."""
    times = timeline([row])
    if not times.steps:
        return []
    step = row["step"]
    root = Span(f"step {step}", now - round(times.total * NANO), times.total, {"grpo.step": step, **_figures(row)})
    start = root.start
    for part, name in PARTS.items():
        if seconds := times.parts[part]:
            span = Span(name, start, seconds)
            start = span.end
            root.parts.append(span)
            if part == SAMPLING and times.sync:
                span.parts.append(Span("sync", span.start, min(times.sync, seconds)))
            if part == SCORING:
                span.attributes = {f"grpo.reward.{reward}.seconds": taken for reward, taken in times.calls.items()}
    root.events += [("alarm", dict(alarm)) for alarm in alarms]
    wrong = {
        name: value
        for name, value in row.items()
        if name.startswith("canaries/") and name.endswith(("/drift", "/failure")) and value
    }
    if wrong:
        root.events.append(("canaries", {_attribute(name): value for name, value in wrong.items()}))
    return [root]


def _attribute(metric: str) -> str:
    return "grpo." + metric.replace("/", ".")


def _figures(row: Mapping[str, Any]) -> dict[str, float]:
    known = [
        (name, float(value))
        for name, value in row.items()
        if name != "step" and not name.startswith(CALLS) and isinstance(value, (int, float)) and math.isfinite(value)
    ]
    known.sort(key=lambda figure: figure[0].count("/"))
    return {_attribute(name): value for name, value in known[:FIGURES]}


def _make(tracer: Any, span: Span, parent: Any = None) -> None:
    context = trace.set_span_in_context(trace.INVALID_SPAN if parent is None else parent)
    made = tracer.start_span(span.name, context=context, start_time=span.start, attributes=span.attributes)
    for part in span.parts:
        _make(tracer, part, made)
    for name, attributes in span.events:
        made.add_event(name, attributes, timestamp=span.end)
    made.end(end_time=span.end)


class _Exporter(SpanExporter):  # type: ignore[misc]  # OpenTelemetry is not installed everywhere
    """The SDK's exporter, which logs nothing and remembers why it failed."""

    def __init__(self) -> None:
        patience = None if any(os.environ.get(name) for name in TIMEOUTS) else SECONDS
        self._inner = OTLPSpanExporter(timeout=patience)
        # Its pauses between tries are drawn from the generator that everybody shares, which would change what a run
        # draws; these are drawn from none.
        self._inner._client._compute_backoff = lambda retry: 2.0**retry
        self._reason = ""
        self._reported = False
        self._closed = threading.Lock()
        EXPORT_LOG.addFilter(_kept)

    def export(self, spans: Sequence[Any]) -> Any:
        _here.message = ""
        try:
            result = self._inner.export(spans)
        except Exception as error:
            self._reason = self._reason or f"{type(error).__name__}: {error}"
            return SpanExportResult.FAILURE
        finally:
            message, _here.message = _here.message, None
        if result is not SpanExportResult.SUCCESS:
            self._reason = self._reason or message or "no reason was given"
        return result

    def lost(self) -> str:
        if self._reported or not self._reason:
            return ""
        self._reported = True
        return self._reason

    def give_up(self, reason: str) -> None:
        self._reason = self._reason or reason
        self.shutdown()

    def shutdown(self) -> None:
        if self._closed.acquire(blocking=False):  # the SDK warns of a second time
            self._inner.shutdown()


class _Ids(IdGenerator):  # type: ignore[misc]  # OpenTelemetry is not installed everywhere
    """Ids from the system's randomness: the SDK's own come from the generator that a run draws from."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def generate_span_id(self) -> int:
        return self._random.randrange(1, 2**64)

    def generate_trace_id(self) -> int:
        return self._random.randrange(1, 2**128)

    def is_trace_id_random(self) -> bool:
        return True


def _kept(record: logging.LogRecord) -> bool:
    """Keeps what our exporter logs for the one warning, and lets pass what others log."""
    if getattr(_here, "message", None) is None:
        return True
    _here.message = record.getMessage()
    return False
