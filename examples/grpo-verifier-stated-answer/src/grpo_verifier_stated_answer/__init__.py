"""Verifies that a completion states the gold answer.

Keep the imports light: every grpo command that lists plugins makes them.
"""

from __future__ import annotations

from grpo import Case, Verdict, VerifierSpec, hookimpl, verifier

grpo_contract = 1


@verifier(
    version=1,
    cases=[
        Case("It is the largest.\nAnswer: Jupiter", row={"answer": "Jupiter"}, expect=True),
        Case("Answer: jupiter.", row={"answer": "Jupiter"}, expect=True),
        Case("Answer: Saturn", row={"answer": "Jupiter"}, expect=False),
        Case("Answer: Saturn or Jupiter", row={"answer": "Jupiter"}, expect=False),
        Case("I do not know.", row={"answer": "Jupiter"}, expect=False),
        Case("Answer: Jupiter", row={"answer": ""}, expect=None),
    ],
)
def stated_answer(completion: str, answer: str) -> Verdict:
    """Judges whether the text after the last "Answer:" is the gold answer; case and a final full stop do not count.

    Args:
        completion: the text that is judged.
        answer: the gold answer.
    """
    gold = _plain(str(answer or ""))
    if not gold:
        return Verdict(None, reason="the row has no gold answer")
    _, marked, stated = completion.rpartition("Answer:")
    if not marked:
        return Verdict(False, reason="there is no answer in the completion")
    return Verdict(_plain(stated) == gold, extracted=stated.strip()[:200], reason=f"expected {gold}")


def _plain(text: str) -> str:
    return text.strip().removesuffix(".").strip().casefold()


@hookimpl
def grpo_verifiers() -> list[VerifierSpec]:
    """Offers the verifier to grpo."""
    return [stated_answer]
