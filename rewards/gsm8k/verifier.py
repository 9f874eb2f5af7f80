"""Verifies answers to GSM8K problems. It judges and never scores."""

from __future__ import annotations

from grpo.plugins.decorators import verifier
from grpo.plugins.types import Case, Verdict
from grpo.rewards.answer_text import shortened
from grpo.rewards.numbers.answers import Answer, final_answer, gold_numbers, is_right


@verifier(
    version=6,
    isolation="inline",
    cases=[
        Case("6*12 = 72\n#### 72", {"answer": "6*12 = <<6*12=72>>72\n#### 72"}, True),
        Case("<reasoning>\n6*12\n</reasoning>\n<answer>\n$72.00\n</answer>", {"answer": "72"}, True),
        Case("<SOLUTION>1,080</SOLUTION>", {"answer": "1,080"}, True),
        Case("So it is \\boxed{72}.", {"answer": "72"}, True),
        Case("She sold 48 and then 24, so 72 clips in all.", {"answer": "72"}, True),
        Case("<answer>71</answer>", {"answer": "72"}, False),
        Case("<answer>71 or 72</answer>", {"answer": "72"}, False),
        Case("<answer>72</answer>", {"answer": ["71", "72"]}, True),
        Case("3*60=180 a day, a total of 540.", {"answer": "540"}, True),
        Case("x=71, x=72", {"answer": "72"}, False),
        Case("6*12 = 72 <answer></answer>", {"answer": "72"}, False),
        Case("I cannot tell.", {"answer": "72"}, False),
        Case('<tool_call>{"name": "python", "arguments": {"code": "print(144/2)', {"answer": "72"}, False),
        Case("<answer>72</answer>", {"answer": "unknown"}, None),
    ],
)
def gsm8k(completion: str, answer: str | list[str]) -> Verdict:
    """Judges whether the final answer equals the gold number, exactly (72.0 is 72; 0.333 is not 1/3).

    The text after the reasoning (`</think>`, `[/THINK]`, channels and others) counts before the reasoning itself.
    In it the last of `<answer>`, `<SOLUTION>`, `\\boxed{}` and `#### 72` that is not blank decides; without one, what
    follows "the answer is", "Answer:" or "A:"; without that, the last sentence with a number. Sign, currency,
    thousands, percent, fractions, 1.2e3, LaTeX spellings and units after the number are read. An answer that hedges
    ("71 or 72", "x=71, x=72", "71 \u00b1 1") or is left as a sum ("6 * 12") is wrong, an empty block at the end is no
    answer, and a `<tool_call>` is none. Where the text takes its marked answer back, what follows it decides. Of a list
    of golds any one will do. Undecided only when no gold is one number.
    """
    stated = final_answer(completion)
    extracted = _written(stated)
    golds = gold_numbers(answer)
    if not golds:
        return Verdict(None, extracted, f"the gold answer {shortened(repr(answer))} is not one number")
    gold = " or ".join(gold_number.text for gold_number in golds)
    if stated is None:
        return Verdict(False, None, "no number and no marked answer in the completion")
    if not stated.numbers:
        return Verdict(False, extracted, f"the answer ({stated.form}) is not a number")
    if is_right(stated, *golds):
        return Verdict(True, extracted, f"equals the gold {gold} ({stated.form})")
    if len({number.value for number in stated.numbers}) > 1:
        return Verdict(False, extracted, f"several numbers where one is asked ({stated.form})")
    return Verdict(False, extracted, f"differs from the gold {gold} ({stated.form})")


def _written(stated: Answer | None) -> str | None:
    if stated is None:
        return None
    if len(stated.numbers) == 1:
        return stated.numbers[0].text[:200]
    return stated.text
