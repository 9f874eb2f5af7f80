"""Scores 1 or 0 for a correct or wrong mathematical answer, and abstains where it cannot be decided."""

from __future__ import annotations

from typing import Literal

from grpo.plugins.decorators import reward
from grpo.plugins.types import Case
from grpo.rewards.math.answer import gold_text
from grpo.rewards.math.process import SECONDS, Undecided, Unreadable, compare
from grpo.rewards.math.verifier import CASES, TIMEOUT, prepare
from grpo.rewards.math.verifier import math as verifier

Variant = Literal["verifier", "trl.accuracy_reward", "trl.reasoning_accuracy_reward", "open_r1.accuracy_reward"]


def _score(ok: object) -> float | None:
    return None if ok is None else float(bool(ok))


@reward(
    name="math",
    version=6,
    as_published=["variant"],
    range=(0.0, 1.0),
    isolation="process",
    timeout=TIMEOUT,
    prepare=prepare,
    cases=[
        *(Case(case.completion, case.row, _score(case.expect)) for case in CASES),
        Case("\\boxed{\\frac{1}{2}}", {"answer": "0.5"}, 1.0, {"variant": "trl.accuracy_reward"}),
        Case("<answer>72</answer>", {"answer": "72"}, 0.0, {"variant": "trl.accuracy_reward"}),
        Case("<think>a</think>\\boxed{72}", {"answer": "72"}, 1.0, {"variant": "trl.reasoning_accuracy_reward"}),
        Case("\\boxed{72}", {"answer": "72"}, 1.0, {"variant": "open_r1.accuracy_reward"}),
        Case("\\boxed{72}", {"answer": "seventy-two"}, None, {"variant": "open_r1.accuracy_reward"}),
    ],
)
def accuracy(
    completion: str,
    answer: str | list[str],
    question: str | None = None,
    *,
    precision: int = 6,
    strict: bool = True,
    relations: bool = True,
    evaluated: bool = True,
    limit: float = SECONDS,
    undecided: float | None = None,
    variant: Variant = "verifier",
    delimiters: tuple[str, ...] = ("</think>",),
) -> float | None:
    """1 when the verifier `math` finds the answer right, 0 when wrong; abstains when it is undecided.

    Args:
        completion: the text.
        answer: the gold, as for the verifier.
        question: see the verifier, as for `precision`, `strict`, `relations`, `evaluated` and `limit`; the published
            variants use `limit` alone.
        undecided: the score where the gold, or a machine under load, kept an answer from being compared; None
            abstains. An answer that exhausts the limits itself is wrong: a policy could choose to be left out.
        variant: "verifier", or a published function, scored as published: trl.accuracy_reward (only LaTeX counts, a
            box first; abstains when the gold cannot be read), trl.reasoning_accuracy_reward (the same for the text
            after the reasoning; 0 without its end), open_r1.accuracy_reward (as TRL's, with other rules for LaTeX).
        delimiters: ends of the reasoning for trl.reasoning_accuracy_reward; the first that occurs counts.
    """
    if variant == "verifier":
        verdict = verifier(
            completion,
            answer,
            question,
            precision=precision,
            strict=strict,
            relations=relations,
            evaluated=evaluated,
            limit=limit,
        )
        golds = answer if isinstance(answer, list | tuple) else [answer]
        usable = any(gold_text(gold) is not None for gold in golds)
        return undecided if verdict.ok is None and usable else _score(verdict.ok)
    if variant == "trl.reasoning_accuracy_reward":
        ends = [end for end in delimiters if end in completion]
        if not ends:
            return 0.0
        completion = completion.rpartition(ends[0])[2]
    operation = "open_r1" if variant == "open_r1.accuracy_reward" else "trl"
    try:
        return _score(compare(operation, str(answer), completion, seconds=limit))
    except Unreadable:
        return 0.0
    except Undecided:
        return undecided
