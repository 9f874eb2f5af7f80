"""Scores whether a completion equals one of the gold texts or shares words with it."""

from __future__ import annotations

from typing import Literal

from grpo.plugins.decorators import reward
from grpo.plugins.types import Case
from grpo.rewards.answer_text import answer_text, explicit_answer, text_answer
from grpo.rewards.math.answer import MARKUP, Statement
from grpo.rewards.math.cue import correction, last_words, words_behind_cue
from grpo.rewards.words import is_stated, normal, overlap


@reward(
    version=5,
    range=(0.0, 1.0),
    isolation="inline",
    cases=[
        Case("<think>The Seine is there.</think>Paris", {"answer": "paris"}, 1.0),
        Case("<answer>New York City!</answer>", {"answer": ["NYC", "new york city"]}, 1.0),
        Case("<answer>Lyon</answer>", {"answer": "Paris"}, 0.0),
        Case("<answer>Paris or Lyon</answer>", {"answer": "Paris"}, 0.0),
        Case("The answer is Paris.", {"answer": "Paris"}, 1.0),
        Case("The capital of France is Paris.", {"answer": "Paris"}, 1.0),
        Case("The capital of France is not Paris.", {"answer": "Paris"}, 0.0),
        Case("**Answer:** Paris\n\nIt lies on the Seine.", {"answer": "Paris"}, 1.0),
        Case("The answer is Paris or Lyon.", {"answer": "Paris"}, 0.0),
        Case("The answer is Lyon.\nParis", {"answer": "Paris"}, 0.0),
        Case("<think>Paris</think><answer></answer>", {"answer": "Paris"}, 0.0),
        Case("New York\nCity", {"answer": "new york city"}, 1.0),
        Case("", {"answer": "Paris"}, 0.0),
        Case("hello world", {"answer": "hello"}, 2 / 3, {"measure": "f1"}),
        Case("<answer>Paris</answer>", {"answer": []}, None),
    ],
)
def text_match(completion: str, answer: str | list[str], *, measure: Literal["exact", "f1"] = "exact") -> float | None:
    """How well the answer matches a gold text, or the best of several, without case, punctuation and articles.

    The answer is the last `<answer>`, `<SOLUTION>` or `\\boxed{}` that is not blank, else what stands behind the last
    cue ("The answer is Paris.") or what the last sentence names, else the last line or all of the text, whichever is
    nearer. A blank block at the end
    is no answer. Abstains when no gold has a word.

    Args:
        completion: the text.
        answer: the gold text, or a list of texts each of which is right.
        measure: exact (1 when a gold is the same, else 0) or f1 (the words shared with the gold, 0 to 1: a list of
            words earns part of it, so use it beside something that pays for brevity).
    """
    golds = [answer] if isinstance(answer, str) else answer
    if not isinstance(golds, list | tuple):
        return None
    golds = [gold for gold in golds if isinstance(gold, str) and normal(gold)]
    if not golds:
        return None
    texts = [MARKUP.sub(r"\1", text) for text in _readings(completion, measure)]
    pairs = [(text, gold) for gold in golds for text in texts if is_stated(text, gold)]
    if measure == "f1":
        return max((overlap(text, gold) for text, gold in pairs), default=0.0)
    return float(any(normal(text) == normal(gold) for text, gold in pairs))


def _readings(completion: str, measure: str) -> tuple[str, ...]:
    """The explicit answer, what stands behind a cue, or the last line and all of the text.

    Exactly the gold is all of a text also behind a cue ("the answer is 42"), or what its last sentence names.
    """
    explicit = explicit_answer(completion)
    if explicit is not None:
        corrected = correction(completion)
        return (explicit,) if corrected is None else _readings(corrected, measure)
    whole = answer_text(completion) or ""
    cued = words_behind_cue(whole)
    if measure == "f1":
        return cued or (text_answer(completion) or "", whole)
    return (*(cued or (text_answer(completion) or "", *last_words(Statement(whole, "prose")))), whole)
