"""Scores known completions during a run, and warns or stops it when their scores are wrong.

Each canary is scored beside the training batches, outside the loss (docs/scoring.md). Where it should be abstained on,
any score is a false positive; an abstention where a score is due is a false negative. A plugin with more failures and
drifted canaries than `share` is wrong: a warning, and after `patience` looks in a row the end of the run. Being wrong
from the start is a warning once and not drift.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any

from grpo.core.display.progress import Progress
from grpo.core.plan import Plan
from grpo.core.processes.group import gathered
from grpo.core.processes.rank import is_first
from grpo.core.record.run_dir import RunDir, read_json, write_json
from grpo.core.run.scoring import Scoring
from grpo.core.scoring.known import Canary
from grpo.core.scoring.outcome import Judgement, Outcome
from grpo.core.scoring.scorer import Scorer
from grpo.core.text.stats import mean_or_none
from grpo.core.train.batch.batch import Batch
from grpo.core.train.part import Part
from grpo.plugins.errors import RunError
from grpo.plugins.rubric import parts

FAILED = "failure"
CanaryScore = float | str | None  # a score, an abstention, or FAILED


@dataclass(frozen=True, slots=True)
class Look:
    """The findings of one look at the canaries."""

    metrics: Mapping[str, float]  # `canaries/NAME/...` to a share
    warnings: Sequence[str]  # in words, for people
    stop: str | None  # why the run has to end, or None
    scores: Sequence[CanaryScore]  # what each canary got: a score, None for an abstention, or "failure"


@dataclass(slots=True)
class _Plugin:
    title: str
    metric: str
    indices: list[int] = field(default_factory=list)
    wrong_looks: int = 0


@dataclass(eq=False)
class CanaryWatch:
    """Scores the canaries and remembers how they scored at first.

    `tolerance`: how far a score may be from the expected one, in units of the score. `share`: of a plugin's canaries
    that may fail or drift. `patience`: how many looks in a row a plugin may be wrong. `baseline`: the scores at the
    start of the run; None: of the first look.
    """

    canaries: Sequence[Canary]
    titles: InitVar[Mapping[tuple[str, str], str]]
    tolerance: float
    share: float
    patience: int
    baseline: Sequence[CanaryScore] | None = None
    _plugins: dict[tuple[str, str], _Plugin] = field(default_factory=dict, init=False)

    def __post_init__(self, titles: Mapping[tuple[str, str], str]) -> None:
        for index, canary in enumerate(self.canaries):
            key = (canary.kind, canary.name)
            shared = canary.kind == "verifier" and ("reward", canary.name) in titles
            metric = f"canaries/{canary.name}{'.verifier' if shared else ''}"
            self._plugins.setdefault(key, _Plugin(titles[key], metric)).indices.append(index)

    def look(self, scorer: Scorer, step: int) -> Look:
        """Scores every canary, and judges the plugins by it."""
        scores, reasons = self._scored(scorer)
        first = self.baseline is None
        if self.baseline is None:
            self.baseline = scores
        metrics: dict[str, float] = {}
        warnings: list[str] = []
        stop = None
        for plugin in self._plugins.values():
            metrics |= {f"{plugin.metric}/{what}": share for what, share in self._shares(plugin, scores).items()}
            surprises = [index for index in plugin.indices if self._is_wrong(index, scores[index])]
            if first:
                warnings += self._known_weaknesses(plugin, scores)
            if len(surprises) <= self.share * len(plugin.indices):
                plugin.wrong_looks = 0
                continue
            plugin.wrong_looks += 1
            warning = self._drift_message(plugin, surprises, scores, reasons, step)
            if plugin.wrong_looks > self.patience:
                stop = stop or f"{warning} It was so {plugin.wrong_looks} times in a row. Fix it, then resume the run."
            else:
                left = self.patience + 1 - plugin.wrong_looks
                warnings.append(f"{warning} The run stops if it is so {left} more times in a row.")
        return Look(metrics, warnings, stop, scores)

    def _scored(self, scorer: Scorer) -> tuple[list[CanaryScore], dict[int, str]]:
        scores: list[CanaryScore] = [None] * len(self.canaries)
        reasons: dict[int, str] = {}
        for key, plugin in self._plugins.items():
            completions = [self.canaries[index].completion for index in plugin.indices]
            owner = self.canaries[plugin.indices[0]].owner
            outcomes: list[Outcome | Judgement] = []
            if key[0] == "reward":
                outcomes += scorer.score(completions, only=[owner])[key[1]]
            else:
                outcomes += scorer.judge(completions, only=[owner])[key[1]]
            for index, result in zip(plugin.indices, outcomes, strict=True):
                scores[index] = _score_of(result)
                reasons[index] = result.reason or ""
        return scores, reasons

    def _shares(self, plugin: _Plugin, values: Sequence[CanaryScore]) -> dict[str, float]:
        """Returns the four shares; one of nothing is left out."""
        due = {index: self.canaries[index].expect for index in plugin.indices}
        scores = [score for score in due.values() if score is not None]
        best, worst = max(scores, default=None), min(scores, default=None)
        negatives = [i for i, score in due.items() if score is None or (best is not None and score < best)]
        positives = [i for i, score in due.items() if score is not None and worst is not None and score > worst]
        if best == worst:  # of one kind only: which one it is, the range of a single value does not say
            negatives = [i for i, score in due.items() if score is None or score <= 0]
            positives = [i for i, score in due.items() if score is not None and score > 0]
        shares = {
            "false_positive": mean_or_none([self._paid_more(i, values[i]) for i in negatives]),
            "false_negative": mean_or_none([self._paid_less(i, values[i]) for i in positives]),
            "failure": mean_or_none([values[i] == FAILED for i in plugin.indices]),
            "drift": mean_or_none([values[i] != FAILED and self._is_wrong(i, values[i]) for i in plugin.indices]),
        }
        return {what: share for what, share in shares.items() if share is not None}

    def _paid_more(self, index: int, score: CanaryScore) -> bool:
        expect = self.canaries[index].expect
        return isinstance(score, float) and (expect is None or score > expect + self.tolerance)

    def _paid_less(self, index: int, score: CanaryScore) -> bool:
        expect = self.canaries[index].expect
        return expect is not None and (score is None or (isinstance(score, float) and score < expect - self.tolerance))

    def _as_expected(self, index: int, score: CanaryScore) -> bool:
        return score != FAILED and not self._paid_more(index, score) and not self._paid_less(index, score)

    def _is_wrong(self, index: int, score: CanaryScore) -> bool:
        if score == FAILED or self.baseline is None:
            return score == FAILED
        before = self.baseline[index]
        if isinstance(score, float) and isinstance(before, float):
            return not self._as_expected(index, score) and abs(score - before) > self.tolerance
        return not self._as_expected(index, score) and score != before

    def _known_weaknesses(self, plugin: _Plugin, scores: Sequence[CanaryScore]) -> list[str]:
        wrong = [i for i in plugin.indices if scores[i] != FAILED and not self._as_expected(i, scores[i])]
        if not wrong:
            return []
        example = self.canaries[wrong[0]]
        return [
            f"{plugin.title} is wrong about {len(wrong)} of its {len(plugin.indices)} canaries from the start: "
            f"{example.where} should {_words(example.expect)}, and it {_did(scores[wrong[0]])}. Drift counts from here."
        ]

    def _drift_message(
        self,
        plugin: _Plugin,
        wrong: Sequence[int],
        scores: Sequence[CanaryScore],
        reasons: Mapping[int, str],
        step: int,
    ) -> str:
        example = self.canaries[wrong[0]]
        did = f"it {_did(scores[wrong[0]])}" + (f" ({reasons[wrong[0]]})" if scores[wrong[0]] == FAILED else "")
        return (
            f"{plugin.title} went wrong about {len(wrong)} of its {len(plugin.indices)} canaries in step {step}: "
            f"{example.where} should {_words(example.expect)}, and {did}."
        )


class RunCanaries(Part):
    """The canaries of a run, looked at as often as the run says; all processes look, so that all of them stop."""

    def __init__(self, plan: Plan, run_dir: RunDir, scoring: Scoring, progress: Progress) -> None:
        section = plan.config.canaries
        recorded = read_json(run_dir.canaries) or {}
        known = recorded.get("fingerprint") == fingerprint(plan.canaries)
        if recorded and not known:
            progress.warned("the canaries are not those that the run started with; drift is measured from now.")
        plugins = [part for reward in plan.rewards for part in parts(reward)]
        titles: dict[tuple[str, str], str] = {
            (bound.spec.kind, bound.name): f"{bound.spec.kind} '{bound.name}' ({bound.distribution})"
            for bound in (*plugins, *plan.verifiers)
        }
        self._watch = CanaryWatch(
            plan.canaries,
            titles,
            tolerance=section.tolerance,
            share=section.share,
            patience=section.patience,
            baseline=recorded["scores"] if known else None,
        )
        self._canaries = plan.canaries
        self._every = section.every
        self._run_dir = run_dir
        self._scoring = scoring
        self._progress = progress
        self._batches = 0

    def on_batch(self, batch: Batch) -> dict[str, float]:
        """Looks at the canaries where that is due; returns metrics, or RunError for a plugin that stays wrong."""
        self._batches += 1
        return self._looked(batch.step) if (self._batches - 1) % self._every == 0 else {}

    def _looked(self, step: int) -> dict[str, float]:
        first, began = self._watch.baseline is None, time.perf_counter()
        look = self._watch.look(self._scoring.scorer, step)
        self._scoring.tell_failures("a plugin failed on a canary.")
        stops = gathered(look.stop, "the look at the canaries")
        if first and is_first():
            write_json(self._run_dir.canaries, {"fingerprint": fingerprint(self._canaries), "scores": look.scores})
        for warning in look.warnings:
            self._progress.warned(warning)
        stop = next((text for text in stops if text is not None), None)
        if stop is not None:
            raise RunError(stop)
        return {**look.metrics, "time/canaries": time.perf_counter() - began}


def fingerprint(canaries: Sequence[Canary]) -> str:
    """Returns a hash of what is scored and expected, by which a resumed run knows its baseline."""
    written: list[Any] = [[c.kind, c.name, c.completion.text, dict(c.completion.row), c.expect] for c in canaries]
    for record, canary in zip(written, canaries, strict=True):
        record += [] if canary.completion.group is None else [canary.completion.group]
    return hashlib.sha256(json.dumps(written, sort_keys=True, default=str).encode()).hexdigest()


def _score_of(result: Outcome | Judgement) -> CanaryScore:
    if result.kind == "failure":
        return FAILED
    if isinstance(result, Outcome):
        return result.score
    return None if result.verdict is None or result.verdict.ok is None else float(result.verdict.ok)


def _words(expect: float | None) -> str:
    return "get no score" if expect is None else f"score {expect:g}"


def _did(score: CanaryScore) -> str:
    return "failed" if score == FAILED else "gave no score" if score is None else f"scored {score:g}"
