"""Summarises a run's record for its page as one JSON value."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from grpo.core.monitor.health import LOGP_DIFFERENCE
from grpo.core.record.list import RunLine
from grpo.core.record.versions import plugin_locks
from grpo.core.report.alarms import Alarm
from grpo.core.report.blocks import PackedRollouts
from grpo.core.report.scan import Scan

DIGITS = 6  # of a metric; a curve shows four
COARSEST = "bfloat16"
LARGEST = 2**53  # up to here a browser has every whole number


def summary_of(
    name: str,
    line: RunLine,
    config: Mapping[str, Any],
    versions: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]],
    alarms: Sequence[Alarm],
) -> dict[str, Any]:
    """Returns the page's data of a run, without its rollouts."""
    versions = versions if isinstance(versions, Mapping) else {}
    keys = dict.fromkeys(key for row in metrics for key in row if key != "step")
    return {
        "name": name,
        "env": line.env,
        "model": line.model,
        "status": line.status,
        "resumes": line.resumes,
        "started": line.started,
        "seconds": _rounded(line.seconds),
        "steps": line.steps,
        "config": config,
        "versions": versions,
        "weights": weights_of(versions),
        "axis": [row["step"] for row in metrics],
        "metrics": {key: [_rounded(row.get(key)) for row in metrics] for key in keys},
        "alarms": [asdict(alarm) for alarm in alarms],
    }


def rollouts_summary(
    scan: Scan, packed: PackedRollouts, cases: Mapping[str, Any], missing: str | None
) -> dict[str, Any]:
    """Returns the page's data of the rollouts of a run; `missing` is why prompts are not as the model read them."""
    return {
        "recorded": len(scan),
        "held": packed.count,
        "recordedBySteps": list(Counter(scan.step).items()),
        "rewards": scan.rewards,
        "envs": scan.envs,
        "finishes": scan.finishes,
        "columns": packed.columns,
        "starts": packed.starts,
        "cases": cases,
        "unseen": missing,
    }


def cases_of(versions: Any) -> dict[str, dict[str, Any]]:
    """Returns by reward what the page writes a `Case` with; a reward of whole completions has all columns."""
    return {lock["name"]: _case(lock) for outer in plugin_locks(versions).values() for lock in _parts(outer)}


def _parts(lock: Any) -> Iterator[Mapping[str, Any]]:
    """Yields the lock of a reward and, of a rubric, those of its components at every depth."""
    if isinstance(lock, Mapping) and lock.get("kind") == "reward" and isinstance(lock.get("name"), str):
        yield lock
        components = lock.get("components")
        for component in components if isinstance(components, list) else ():
            yield from _parts(component)


def _case(lock: Mapping[str, Any]) -> dict[str, Any]:
    options, given, columns = lock.get("options"), _names(lock.get("given")), _names(lock.get("columns"))
    chosen = {name: options[name] for name in given or () if name in options} if isinstance(options, Mapping) else {}
    return {"columns": columns, "options": repr(chosen) if chosen else None, "grouped": lock.get("scope") == "group"}


def _names(value: Any) -> list[str] | None:
    return value if isinstance(value, list) and all(isinstance(name, str) for name in value) else None


def arithmetic_of(config: Mapping[str, Any]) -> str:
    """Returns the dtype that a run trained in; if unknown, the coarsest, which alarms least."""
    dtype = config["train"].get("dtype")
    return dtype if isinstance(dtype, str) and dtype in LOGP_DIFFERENCE else COARSEST


def weights_of(versions: Mapping[str, Any]) -> dict[str, float]:
    """Returns the weight of each reward that has one, by the locks of a run's plugins."""
    rewards = [lock for lock in plugin_locks(versions).values() if lock.get("kind") == "reward"]
    weights = {str(lock.get("name")): _rounded(lock.get("weight")) for lock in rewards}
    return {name: weight for name, weight in weights.items() if weight}


def _rounded(value: Any) -> float | None:
    """Returns a number as a browser can draw it; None for what is none, or is beyond the range of floats."""
    if not isinstance(value, int | float):
        return None
    if isinstance(value, int) and abs(value) <= LARGEST:
        return value
    try:
        number = float(value)
    except OverflowError:
        return None
    return float(f"{number:.{DIGITS}g}") if math.isfinite(number) else None
