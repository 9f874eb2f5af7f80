"""Reads the value that a plugin returned as an `Outcome` or a `Judgement`; an invalid one is a failure, never a 0."""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import repeat
from typing import Any, Literal, NamedTuple, SupportsFloat

from grpo.plugins._spec.binding import BoundReward, BoundVerifier
from grpo.plugins.errors import with_article
from grpo.plugins.types import Scored, Verdict

_LONGEST_REASON = 500
_GLANCE = 32  # scores, of which few are different where a reward has few scores
_TAKEN = frozenset({"mean", "std", "abstain", "failure", "lowest", "of_differences"})


class Outcome(NamedTuple):
    """What one reward made of one completion; a tuple, because a frozen dataclass takes four times as long to make."""

    # "score", "abstain" (the reward does not apply to this completion) or "failure" (of the plugin)
    kind: Literal["score", "abstain", "failure"]
    score: float | None = None  # the score, finite and inside the reward's range; None unless `kind` is "score"
    # why it failed, in one line that names plugin and row; why it abstained, where the reward says so; or which gate of
    # a rubric kept it from being called; None otherwise
    reason: str | None = None
    seconds: float = 0.0  # wall time of the call; for a batch reward, its share of the batch's call
    metrics: Mapping[str, float] | None = None  # figures that the reward reports beside its score, or None
    # what each turn earned of the score, where the reward says so; the rest belongs to the last
    turns: tuple[float, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        """Returns the entry of `scores` in a recorded row; "metrics" and "turns" only where there are some."""
        entry: dict[str, Any] = {"outcome": self.kind, "score": self.score, "reason": self.reason}
        if self.metrics:
            entry["metrics"] = dict(self.metrics)
        return entry if self.turns is None else {**entry, "turns": list(self.turns)}


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one verifier made of one completion."""

    kind: Literal["verdict", "failure"]  # "verdict", or "failure" (of the plugin)
    verdict: Verdict | None = None  # the verdict; None for a failure
    reason: str | None = None  # why it failed, in one line that names plugin and row; None otherwise

    def as_json(self) -> dict[str, Any]:
        """Returns the entry of `verdict` in a recorded row."""
        verdict = self.verdict or Verdict(None, reason=self.reason)
        return {"outcome": self.kind, "ok": verdict.ok, "extracted": verdict.extracted, "reason": verdict.reason}


Result = Outcome | Judgement


class Reader:
    """Reads the values that one plugin returns.

    `where`: the plugin's kind, name and distribution, for messages. `low`, `high`: the range, cut to finite numbers, so
    that `low <= value <= high` refuses NaN and infinities too.
    """

    def __init__(self, plugin: BoundReward | BoundVerifier) -> None:
        spec = plugin.spec
        self.where = f"{spec.kind} '{plugin.name}'"
        if plugin.name != spec.name:
            self.where += f" ({spec.name})"
        if plugin.distribution:
            self.where += f" of {plugin.distribution}"
        self.judges = spec.kind == "verifier"
        largest = sys.float_info.max
        low, high = plugin.spec.range if isinstance(plugin, BoundReward) else (-largest, largest)
        self.low, self.high = max(low, -largest), min(high, largest)

    def read(self, value: Any, row: int, seconds: float, turns: int = 1) -> Result:
        """Returns the outcome or judgement that a returned value stands for, of a rollout of so many turns."""
        if self.judges:
            return self._verdict(value, row)
        if isinstance(value, Scored):
            return self._with_figures(value, row, seconds, turns)
        if value is None:
            return Outcome("abstain", None, None, seconds)
        value = _plain_number(value)
        problem = self._problem(value)
        if problem:
            return self.failure(problem, row, seconds)
        return Outcome("score", float(value), None, seconds)

    def usual(self, values: Sequence[Any], seconds: float) -> list[Outcome] | None:
        """Reads values that are all plain numbers in the range, in a tenth of the time of `read`; None for others."""
        kinds = {*map(type, values)}
        if self.judges or not kinds or not kinds <= {float, int, bool}:
            return None
        try:
            scores = values if kinds == {float} else [*map(float, values)]
        except OverflowError:
            return None
        # A NaN, which is neither below nor above, makes the sum one.
        if not (self.low <= min(scores) and max(scores) <= self.high) or math.isnan(sum(scores)):
            return None
        if len({*scores[:_GLANCE]}) <= _GLANCE // 2 < len(scores):  # equal outcomes are one
            made = {score: Outcome("score", score, None, seconds) for score in {*scores}}
            return [made[score] for score in scores]
        fields = zip(repeat("score"), scores, repeat(None), repeat(seconds), repeat(None), repeat(None), strict=False)
        return list(map(tuple.__new__, repeat(Outcome), fields))

    def failure(self, problem: str, row: int, seconds: float = 0.0) -> Result:
        reason = f"{self.where}, row {row}: {' '.join(problem.split())}"
        if len(reason) > _LONGEST_REASON:
            reason = reason[: _LONGEST_REASON - 3] + "..."
        if self.judges:
            return Judgement("failure", None, reason)
        return Outcome("failure", None, reason, seconds)

    def _with_figures(self, value: Scored, row: int, seconds: float, turns: int) -> Result:
        if not isinstance(value.metrics, Mapping):
            problem = (
                f"its Scored has metrics that are {with_article(type(value.metrics).__name__)}; they are a mapping."
            )
            return self.failure(problem, row, seconds)
        for name, figure in value.metrics.items():
            if not isinstance(name, str) or not name or name in _TAKEN:
                return self.failure(f"its Scored has a metric named {_short(name)}, which is taken.", row, seconds)
            if not name.isprintable():
                problem = f"its Scored has a metric named {ascii(name)[:60]}, which cannot be shown; use plain words."
                return self.failure(problem, row, seconds)
            if type(figure) not in (int, float) or not is_finite(figure):
                problem = f"its Scored has the metric {name}={_short(figure)}; a metric is a finite number."
                return self.failure(problem, row, seconds)
        if isinstance(value.score, Scored):
            return self.failure("its Scored holds another one; its score is a float or None.", row, seconds)
        miscounted = None if value.turns is None else _turns_problem(value.turns, turns)
        if miscounted:
            return self.failure(miscounted, row, seconds)
        read = self.read(value.score, row, seconds)
        if not isinstance(read, Outcome):
            return read
        each = None if value.turns is None or read.kind != "score" else tuple(map(float, value.turns))
        if value.reason is not None and not isinstance(value.reason, str):
            return self.failure("its Scored has a reason that is not text; it is a str or None.", row, seconds)
        why = value.reason if read.kind == "abstain" else read.reason
        return read._replace(reason=why, metrics=dict(value.metrics), turns=each)

    def _problem(self, value: Any) -> str | None:
        if not isinstance(value, numbers.Real):
            kind = with_article(type(value).__name__)
            return f"it returned {_short(value)}, {kind}; a reward returns a float, or None to abstain."
        try:
            number = float(value)
        except (OverflowError, ValueError, TypeError) as error:
            return f"it returned {_short(value)}, which is not a float: {error}"
        if not math.isfinite(number):
            return f"it returned {number}; a score is finite. Return None where nothing can be scored."
        if not self.low <= number <= self.high:
            return f"it returned {number}, outside its range {self.low:g} to {self.high:g}."
        return None

    def _verdict(self, value: Any, row: int) -> Result:
        problem = None
        value = _plain_verdict(value)
        if not isinstance(value, Verdict):
            kind = with_article(type(value).__name__)
            problem = f"it returned {_short(value)}, {kind}; a verifier returns a Verdict, or a bool."
        elif value.ok is not None and not isinstance(value.ok, bool):
            problem = f"its Verdict has ok={_short(value.ok)}; ok is True, False or None."
        elif any(text is not None and not isinstance(text, str) for text in (value.extracted, value.reason)):
            problem = "its Verdict has an extracted or a reason that is not text; both are str or None."
        return Judgement("verdict", value, None) if problem is None else self.failure(problem, row)


def _turns_problem(turns: Any, count: int) -> str | None:
    if not isinstance(turns, Sequence) or isinstance(turns, str | bytes):
        return f"its Scored has turns that are {with_article(type(turns).__name__)}; they are a list of numbers."
    if len(turns) != count:
        return f"its Scored has {len(turns)} turns for a rollout of {count}; `completion.turns` says how many it has."
    for each in turns:
        if isinstance(each, bool) or not isinstance(each, numbers.Real) or not is_finite(each):
            return f"its Scored has {_short(each)} for a turn; a turn's score is a finite number, 0.0 for nothing."
    return None


def _plain_number(value: Any) -> Any:
    """Returns the number of a bool (1.0 or 0.0), a Decimal and an array without dimensions; all else as it is."""
    value = _without_dimensions(value)
    return float(value) if isinstance(value, bool | Decimal) else value


def _plain_verdict(value: Any) -> Any:
    truth = value if isinstance(value, Verdict) else _without_dimensions(value)
    return Verdict(truth) if isinstance(truth, bool) else value


def _without_dimensions(value: Any) -> Any:
    if isinstance(value, numbers.Real):
        return value
    try:
        return value.item() if value.shape == () else value
    except Exception:
        return value


def is_finite(value: SupportsFloat) -> bool:
    """Returns whether a number is a finite float; False too for one that is too large, or that raises."""
    try:
        return math.isfinite(float(value))
    except Exception:
        return False


def explain(error: BaseException) -> str:
    """Returns "Type: message" for an exception, even for one whose message cannot be made."""
    try:
        message = str(error)
    except Exception:
        message = "(its message cannot be printed)"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        return "a value that cannot be printed"
    return text if len(text) <= 60 else text[:57] + "..."
