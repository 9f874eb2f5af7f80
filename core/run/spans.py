"""The steps of a run as OpenTelemetry spans: metrics in, a trace for each step out, over OTLP.

A trace is a step; its spans are the parts of core/run/timeline.py one after the other, of the same seconds. What ran in
threads beside them has no span. A resource says which run it is, so that the traces of a resumed run stand together.
Prompts and completions are in none. Where spans go is what OpenTelemetry's own variables say
(OTEL_EXPORTER_OTLP_ENDPOINT and others), and a collector that fails or hangs costs a run nothing but these spans.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

from grpo.core.config.settings import OutputSettings
from grpo.core.record.run_dir import RunDir, read_json, write_json
from grpo.core.run.timeline import BETWEEN, HELD_OUT, INSIDE, SAMPLING, UPDATE, WAITING

PATIENCE = 5.0  # seconds for a collector, for a batch of spans and at the end of a run
ATTRIBUTES = {
    "reward": "grpo.reward",
    "accuracy": "grpo.accuracy",
    "loss": "grpo.loss",
    "frac_reward_zero_std": "grpo.no_signal",
    "completions/mean_length": "grpo.completion.mean_tokens",
    "num_tokens": "grpo.tokens",
    "entropy": "grpo.entropy",
    "sampling/staleness": "grpo.staleness",
    "held_out/accuracy": "grpo.held_out.accuracy",
}
FAILURES = "/failure"
SPANS = {SAMPLING: "generate", "scoring": "score", WAITING: "wait", UPDATE: "update", HELD_OUT: "evaluate"}
SYNC = "sync/seconds"
NANO = 1e9


@contextmanager
def open_spans(output: OutputSettings, run: RunDir, warned: Callable[[str], None]) -> Iterator[StepSpans | None]:
    """Yields what makes spans of steps, where a run reports to `otel`; when it is left, what is due has been sent.

    Args:
        output: what the run is called.
        run: keeps the id that its traces have in `otel.json`.
        warned: is told once that spans do not arrive.
    """
    if "otel" not in output.report_to:
        yield None
        return
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it is told here, once
    if not run.otel.is_file():
        write_json(run.otel, {"id": uuid4().hex})
    resource: dict[str, Any] = {
        "service.name": "grpo",
        "grpo.run.id": str(read_json(run.otel)["id"]),
        "grpo.run.name": output.run_name or run.path.name,
        "grpo.project": output.project or "grpo",
        "grpo.tags": list(output.tags),
    }
    if output.run_group:
        resource["grpo.run.group"] = output.run_group
    provider = TracerProvider(resource=Resource.create(resource), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_told_once(warned)))
    try:
        yield StepSpans(provider.get_tracer("grpo"))
    finally:
        with suppress(RuntimeError):  # at the end of the interpreter no thread starts any more
            sent = threading.Thread(target=provider.shutdown, name="grpo-otel", daemon=True)
            sent.start()
            sent.join(PATIENCE)


class StepSpans:
    """Makes spans.

    Args:
        tracer: of OpenTelemetry.
    """

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer

    def step(self, row: Mapping[str, Any]) -> None:
        """Makes the trace of a step that has just ended.

        Args:
            row: its metrics.
        """
        parts = list(_parts(row))
        if not parts:
            return
        end = time.time_ns()
        begin = end - int(sum(seconds for _, seconds in parts) * NANO)
        known = {key: row[name] for name, key in ATTRIBUTES.items() if row.get(name) is not None}
        known |= {
            f"grpo.failures.{name.removeprefix('rewards/').removesuffix(FAILURES)}": share
            for name, share in row.items()
            if name.startswith("rewards/") and name.endswith(FAILURES) and share
        }
        from opentelemetry import context, trace

        whole = self._tracer.start_span(
            "step", context=context.Context(), start_time=begin, attributes={"grpo.step": row["step"], **known}
        )
        inside = trace.set_span_in_context(whole, context.Context())
        at = begin
        for part, seconds in parts:
            until = at + int(seconds * NANO)
            span = self._tracer.start_span(SPANS.get(part, part), context=inside, start_time=at)
            if part == SAMPLING and row.get(SYNC):  # it comes first
                within = trace.set_span_in_context(span, context.Context())
                sync = self._tracer.start_span("sync", context=within, start_time=at)
                sync.end(min(at + int(row[SYNC] * NANO), until))
            span.end(until)
            at = until
        whole.end(end)


def _parts(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yields the parts of a step that took time, in their order, with seconds."""
    if not row.get("time/step"):
        return
    inside = {part: row.get(name) or 0.0 for part, name in INSIDE.items()}
    update = max(0.0, row["time/step"] - sum(inside.values()))
    waiting = inside.pop(WAITING)  # at the end of the step
    later = {part: row.get(name) or 0.0 for part, name in BETWEEN.items()}
    for part, seconds in {**inside, UPDATE: update, WAITING: waiting, **later}.items():
        if seconds > 0:
            yield part, seconds


def _told_once(warned: Callable[[str], None]) -> Any:
    """Returns an exporter that says once that a collector did not take spans."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    class Exporter(OTLPSpanExporter):  # type: ignore[misc]  # opentelemetry is not typed here
        told = False

        def export(self, spans: Sequence[Any]) -> Any:
            found = super().export(spans)
            if found is not SpanExportResult.SUCCESS and not self.told:
                self.told = True
                warned(
                    f"--report-to otel: no collector takes spans at {self._endpoint}; the run goes on without. Name "
                    "another with OTEL_EXPORTER_OTLP_ENDPOINT."
                )
            return found

    return Exporter(timeout=PATIENCE)
