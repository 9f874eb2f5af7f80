"""Scores examples for a check, in any executor; a verdict counts as 1 or 0, an undecided one as an abstention."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from grpo.core.check.answers import QUESTION_NAMES, Example
from grpo.core.check.report import Findings
from grpo.core.scoring.scorer import Judgement, Outcome, Scorer
from grpo.plugins._spec.binding import BoundReward, BoundVerifier
from grpo.plugins.rubric import RubricSpec
from grpo.plugins.types import Completion, Isolation, Message

Bound = BoundReward | BoundVerifier
T = TypeVar("T")
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class ExampleResult:
    """What a plugin made of one example: a score, an abstention (with a verifier's reason), or a failure."""

    kind: Literal["score", "abstain", "failure"]
    value: float | None = None
    reason: str | None = None

    def same(self, other: ExampleResult) -> bool:
        """Returns whether kind and, but for rounding, score are the same; the wording of a failure does not count."""
        if self.value is None or other.value is None:
            return self.kind == other.kind
        return abs(self.value - other.value) <= _CLOSE * max(1.0, abs(self.value))

    def reaches(self, score: float) -> bool:
        """Returns whether the score is, but for rounding, at least this."""
        return self.value is not None and self.value >= score - _CLOSE * max(1.0, abs(score))

    def __str__(self) -> str:
        if self.kind == "failure":
            return f"failed ({self.reason})"
        return "abstained" if self.value is None else f"scored {self.value:g}"


@dataclass(frozen=True, slots=True)
class Check:
    """A reward or verifier under check."""

    bound: Bound
    scorer: Scorer  # whose first plugin it is
    isolation: Isolation  # where the scorer runs it
    findings: Findings

    def score(self, examples: Sequence[Example]) -> list[ExampleResult]:
        return score_examples(self.scorer, examples) if examples else []

    def score_one(self, example: Example) -> ExampleResult:
        [result] = self.score([example])
        return result

    def score_written(self, examples: Sequence[Example]) -> list[ExampleResult]:
        """Scores texts that a policy may write, none of which may crash a plugin: a failure is a finding."""
        results = self.score(examples)
        for example, result in zip(examples, results, strict=True):
            self.findings.tried("no crash")
            if result.kind == "failure":
                relation = "range" if "outside its range" in (result.reason or "") else "no crash"
                message = f"a policy may write this text, and it {result}"
                self.findings.add("error", relation, message, example.text[:200])
        return results


def placed(bound: Bound, isolation: Isolation) -> Bound:
    """Returns the plugin to be run in another executor; of a rubric, every component."""
    return replace(bound, spec=_placed(bound.spec, isolation))


def _placed(spec: Any, isolation: Isolation) -> Any:
    if isinstance(spec, RubricSpec):
        parts = (replace(component, reward=_placed(component.spec, isolation)) for component in spec.components)
        spec = replace(spec, components=tuple(parts))
    return replace(spec, isolation=isolation)


def with_options(bound: Bound, options: Mapping[str, Any]) -> Bound:
    """Returns the plugin with these options over its own."""
    return replace(bound, options={**bound.options, **options}) if options else bound


def score_examples(scorer: Scorer, examples: Sequence[Example], name: str | None = None) -> list[ExampleResult]:
    """Scores examples with the plugin of that name, or the first of a scorer; a rubric comes before its components."""
    completions, only = [completion_of(example) for example in examples], {name or scorer.names[0]}
    results: list[Sequence[Outcome | Judgement]] = [*scorer.score(completions, only=only).values()]
    results += scorer.judge(completions, only=only).values()
    return [_result(result) for result in results[0]]


def score_completions(scorer: Scorer, completions: Sequence[Completion], bound: Bound) -> list[ExampleResult]:
    """Scores completions with one plugin of a scorer, in which a reward and a verifier may have the same name."""
    results: Mapping[str, Sequence[Outcome | Judgement]]
    if isinstance(bound, BoundVerifier):
        results = scorer.judge(completions, only={bound.name})
    else:
        results = scorer.score(completions, only={bound.name})
    return [_result(result) for result in results[bound.name]]


def score_in(bound: Bound, isolation: Isolation, examples: Sequence[Example]) -> list[ExampleResult]:
    """Scores examples in an executor that is opened and closed for them."""
    with Scorer([placed(bound, isolation)], workers=1, retries=0) as scorer:
        return score_examples(scorer, examples)


def score_in_loop(bound: Bound, examples: Sequence[Example]) -> list[ExampleResult]:
    """Scores examples from inside a running event loop, in a thread of its own when this one runs a loop already."""

    async def scored() -> list[ExampleResult]:
        return score_in(bound, "inline", examples)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(scored())
    return in_thread(lambda: asyncio.run(scored()))


def in_thread(work: Callable[[], T], seconds: float | None = None) -> T:
    """Runs work in a thread and returns its result; after TimeoutError the thread, which cannot be ended, runs on."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="grpo-check", daemon=True).start()
    return done.result(seconds)


def completion_of(example: Example) -> Completion:
    """Returns the example as the policy's answer, to the row's question if there is one; the row is a copy."""
    asked = next((example.row[name] for name in QUESTION_NAMES if isinstance(example.row.get(name), str)), None)
    return Completion(
        text=example.text,
        messages=(Message(role="assistant", content=example.text),),
        prompt=() if asked is None else (Message(role="user", content=asked),),
        row=copy.deepcopy(dict(example.row)),
        group=example.group,
    )


def units_of(examples: Sequence[Example]) -> list[list[int]]:
    """Returns the places of examples that are scored together: those of a group, and each that stands alone."""
    units: dict[object, list[int]] = {}
    for place, example in enumerate(examples):
        units.setdefault(("alone", place) if example.group is None else example.group, []).append(place)
    return list(units.values())


def _result(result: Outcome | Judgement) -> ExampleResult:
    if isinstance(result, Outcome):
        score = None if result.score is None else result.score + 0.0  # -0.0 reads as a penalty
        return ExampleResult(result.kind, score, result.reason)
    if result.verdict is None:
        return ExampleResult("failure", None, result.reason)
    if result.verdict.ok is None:
        return ExampleResult("abstain", None, result.verdict.reason)
    return ExampleResult("score", float(result.verdict.ok), result.verdict.reason)
