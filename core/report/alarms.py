"""Finds the alarms in a run's record, by the same watches as while it ran, with the rollouts that show them."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from grpo.core.monitor.hacking.alarm import ALARM, alarm_text, of_record
from grpo.core.monitor.hacking.signals import HackingWatch
from grpo.core.monitor.health import HEALTH, HealthWatch
from grpo.core.monitor.watchdog import Watchdog
from grpo.core.record.browse import OUTCOME, turns_of
from grpo.core.record.list import RunLine
from grpo.core.text.printable import counted
from grpo.plugins.types import Completion

CANARIES = "canaries/"
ENVIRONMENT = "environment"
SHARES = {
    "false_positive": "scored more than they should",
    "false_negative": "scored less than they should",
    "failure": "failed",
    "drift": "drifted",
}
ENDED_EARLY = ("failed", "killed")


@dataclass(frozen=True, slots=True)
class Alarm:
    """One thing to look at."""

    step: int  # where it was seen first
    kind: str  # "health", "hacking", "canary", "failure" or "state"
    text: str  # what was seen
    # the reward that failed; ENVIRONMENT for the environment; "" where it is about all rollouts of the step
    reward: str = ""


@dataclass(slots=True)
class _Failures:
    step: int
    reason: str
    count: int = 0


class AlarmWatch:
    """Repeats the watches of a run, step by step; one that fails says so in an alarm.

    `dtype`: of the run's arithmetic. `metrics`: the rows of metrics.jsonl. `steady`: the prompts of the run do not get
    harder by intent.
    """

    def __init__(self, dtype: str, metrics: Sequence[Mapping[str, Any]], steady: bool = True) -> None:
        self._metrics = metrics
        self._health = HealthWatch(dtype)
        self._hacking = HackingWatch(steady=steady)
        self._guarded = {
            "health": Watchdog(HEALTH, lambda step, text: self._add(step, "health", [text])),
            "hacking": Watchdog(ALARM, lambda step, text: self._add(step, "hacking", [text])),
        }
        self._rows = deque(row for row in metrics if row["step"] > 0)
        self._alarms: list[Alarm] = []
        self._failures: dict[str, _Failures] = {}

    def more(self, metrics: Sequence[Mapping[str, Any]]) -> None:
        """Adds the metrics of a run so far, which begin with those known."""
        self._rows.extend(row for row in metrics[len(self._metrics) :] if row["step"] > 0)
        self._metrics = metrics

    def rollouts(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Looks at the rollouts of a step, after the metrics of the steps before it."""
        self._up_to(step - 1)
        if rows:
            completions, totals = [_completion(row) for row in rows], [row["reward"] for row in rows]
            self._look(step, "health", lambda: self._health.batch(step, completions, totals))
        hacked = partial(self._hacking.look, step, [of_record(row) for row in rows])
        for suspicion in self._guarded["hacking"].look(step, hacked):
            self._add(step, "health" if suspicion.collapse else "hacking", [alarm_text(suspicion)])
        names = [key.removeprefix(OUTCOME) for key in (rows[0] if rows else ()) if key.startswith(OUTCOME)]
        for row in rows:
            failed = [(name, row[f"reason.{name}"]) for name in names if row[OUTCOME + name] == "failure"]
            if row["finish_reason"] == "error":
                failed.append((ENVIRONMENT, json.loads(row["info"] or "{}").get("failure")))
            for name, reason in failed:
                self._failures.setdefault(name, _Failures(step, str(reason or "no reason was given"))).count += 1

    def alarms(self, line: RunLine) -> list[Alarm]:
        self._up_to(None)
        alarms = [*self._alarms, *_canary_alarms(self._metrics)]
        for name, own in self._failures.items():
            who = "the environment" if name == ENVIRONMENT else f"reward '{name}'"
            text = f"{who} failed on {counted(own.count, 'rollout')}, first in step {own.step}: {own.reason}"
            alarms.append(Alarm(own.step, "failure", text, name))
        if line.status in ENDED_EARLY:
            how = "was killed" if line.status == "killed" else "failed"
            alarms.append(Alarm(line.step, "state", f"the run {how} after step {line.step}"))
        return sorted(alarms, key=lambda alarm: alarm.step)

    def _up_to(self, step: int | None) -> None:
        while self._rows and (step is None or self._rows[0]["step"] <= step):
            row = self._rows.popleft()
            self._look(row["step"], "health", partial(self._health.metrics, row))

    def _look(self, step: int, kind: str, looks: Callable[[], Sequence[str]]) -> None:
        self._add(step, kind, self._guarded[kind].look(step, looks))

    def _add(self, step: int, kind: str, texts: Sequence[str]) -> None:
        self._alarms += [Alarm(step, kind, text) for text in texts]


def is_steady(versions: object) -> bool:
    """Returns whether the prompts of a run do not get harder by intent, from its versions.json."""
    return not (isinstance(versions, Mapping) and versions.get("ordered"))


def _completion(row: Mapping[str, Any]) -> Completion:
    info = json.loads(row["info"]) if row["info"] else {}
    return Completion(row["completion"], finish_reason=row["finish_reason"], turns=turns_of(row), info=info)


def _canary_alarms(metrics: Sequence[Mapping[str, Any]]) -> list[Alarm]:
    alarms: list[Alarm] = []
    before: dict[str, float] = {}
    for row in metrics:
        for key, share in row.items():
            if not key.startswith(CANARIES) or share is None:
                continue
            name, _, what = key.removeprefix(CANARIES).rpartition("/")
            if what in SHARES and share > before.get(key, 0.0):
                text = f"canaries of '{name}': {share:.0%} {SHARES[what]}, {before.get(key, 0.0):.0%} before"
                alarms.append(Alarm(row["step"], "canary", text))
            before[key] = share
    return alarms
