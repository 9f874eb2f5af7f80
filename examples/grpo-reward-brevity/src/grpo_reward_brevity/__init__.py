"""A reward for short answers and a verifier of a word limit.

In: a completion, and the column `max_words` where a row has one. Out: a score from 0 to 1, or a verdict.
"""

from __future__ import annotations

from grpo import Case, RewardSpec, Verdict, VerifierSpec, hookimpl, reward, verifier

grpo_contract = 1


@reward(
    version=1,
    range=(0.0, 1.0),
    isolation="inline",
    cases=[
        Case("two words", expect=1.0),
        Case("one two three", row={"max_words": 2}, expect=0.5),
        Case("one two three four", row={"max_words": 2}, expect=0.0),
        Case("one two three", options={"limit": 2, "slack": 2.0}, expect=0.75),
        Case("   ", expect=0.0),
        Case("anything", row={"max_words": 0}, expect=None),
    ],
)
def brevity(completion: str, max_words: int | None = None, *, limit: int = 50, slack: float = 1.0) -> float | None:
    """Scores 1 up to a limit of words; beyond it the score falls in a straight line to 0.

    The line ends at `limit * (1 + slack)` words. A row may bring its own limit in the column `max_words`; a row whose
    limit is 0 asks for no answer, and the reward abstains. A completion without words scores 0.

    Args:
        completion: the text that is scored.
        max_words: the row's own limit in words; it goes before the option.
        limit: the limit in words.
        slack: how far beyond the limit the score reaches 0, as a share of the limit; 0 makes it a step.
    """
    most = limit if max_words is None else max_words
    if most == 0:
        return None
    words = len(completion.split())
    if words == 0:
        return 0.0
    if words <= most:
        return 1.0
    return max(0.0, 1.0 - (words - most) / (most * slack)) if slack else 0.0


@verifier(
    version=1,
    isolation="inline",
    cases=[
        Case("two words", row={"max_words": 2}, expect=True),
        Case("now three words", row={"max_words": 2}, expect=False),
        Case("", row={"max_words": 2}, expect=None),
    ],
)
def within_words(completion: str, max_words: int) -> Verdict:
    """Judges whether a completion keeps to the row's limit of words; it cannot say so of an empty one.

    Args:
        completion: the text that is judged.
        max_words: the limit in words.
    """
    words = len(completion.split())
    if words == 0:
        return Verdict(None, reason="there are no words to count")
    return Verdict(words <= max_words, extracted=str(words), reason=f"{words} words, limit {max_words}")


@hookimpl
def grpo_rewards() -> list[RewardSpec]:
    """Offers the reward to grpo."""
    return [brevity]


@hookimpl
def grpo_verifiers() -> list[VerifierSpec]:
    """Offers the verifier to grpo."""
    return [within_words]
