"""Checks that a plugin scores alike in every executor and order: an alarm in a verifier fails off the main thread."""

from __future__ import annotations

import random
from collections.abc import Sequence

from grpo.core.check.answers import Example
from grpo.core.check.scores import (
    Check,
    ExampleResult,
    completion_of,
    placed,
    score_examples,
    score_in,
    score_in_loop,
    units_of,
)
from grpo.core.scoring.scorer import Scorer
from grpo.plugins._spec.signature import is_async

_SHUFFLE = 20_251


def check_executors(check: Check, examples: Sequence[Example], expected: Sequence[ExampleResult]) -> None:
    """Compares the scores of examples that did not fail in every executor and order with `expected`."""
    sound = [unit for unit in units_of(examples) if all(expected[place].kind != "failure" for place in unit)]
    places = sorted(place for unit in sound for place in unit)
    if not places:
        return
    kept = [examples[place] for place in places]
    wanted = [expected[place] for place in places]

    def compare(
        relation: str, got: Sequence[ExampleResult], of: Sequence[Example] = kept, to: Sequence[ExampleResult] = wanted
    ) -> None:
        check.findings.tried(relation)
        for example, result, reference in zip(of, got, to, strict=True):
            if not result.same(reference):
                check.findings.add("error", relation, f"elsewhere it {reference}, here it {result}", example.text)

    with Scorer([placed(check.bound, "inline")], workers=1, retries=0) as scorer:
        compare("calling thread", score_examples(scorer, kept))
        compare("repeated call", score_examples(scorer, kept))
        units = units_of(kept)
        alone = {
            place: result
            for unit in units
            for place, result in zip(unit, score_examples(scorer, [kept[i] for i in unit]), strict=True)
        }
        compare("batch of one", [alone[place] for place in range(len(kept))])
        order = random.Random(_SHUFFLE).sample(range(len(kept)), len(kept))
        mixed = [kept[index] for index in order]
        compare("permuted batch", score_examples(scorer, mixed), mixed, [wanted[index] for index in order])
        _check_rows(scorer, kept, check)
    compare("worker thread", score_in(check.bound, "thread", kept))
    if check.isolation == "process" and not is_async(check.bound.spec.function):
        compare("worker process", score_in(check.bound, "process", kept))
    compare("running event loop", score_in_loop(check.bound, kept))


def _check_rows(scorer: Scorer, examples: Sequence[Example], check: Check) -> None:
    check.findings.tried("row unchanged")
    completions = [completion_of(example) for example in examples]
    scorer.score(completions)
    scorer.judge(completions)
    for example, completion in zip(examples, completions, strict=True):
        if completion.row != dict(example.row):
            check.findings.add("error", "row unchanged", "the plugin changed the row that it was given", example.text)
