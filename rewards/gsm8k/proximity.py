"""Scores how close the answer is to the gold answer, within bounds.

Our own score is continuous; the published stepped tables and their companion functions stand beside it.
"""

from __future__ import annotations

import math
from fractions import Fraction

from grpo.plugins.decorators import reward
from grpo.plugins.types import Case
from grpo.rewards.gsm8k.score_tables import Table, gold_text, score_answer, score_number, score_tags, solution_text
from grpo.rewards.numbers.answers import final_answer, gold_numbers
from grpo.rewards.numbers.numerals import Number, distance

_FLOOR = 0.1
_EOS = "<|endoftext|>"
_WORKED = "<start_working_out>6 boxes of 12<end_working_out><SOLUTION>72</SOLUTION>"
_OFF_BY_ONE = _FLOOR + (1 - _FLOOR) / 3


def closeness(guess: Number, gold: Number) -> float:
    """Returns 1 / (1 + 2 log2(1 + d/u)), in (0, 1]: 1 at distance d = 0, 1/3 at one unit u, falling ever more slowly.

    u = min(1, |gold|), or 1 when the gold is 0: whole numbers are measured in ones, fractions by their own size.
    """
    unit = min(Fraction(1), abs(gold.value)) or Fraction(1)
    return 1.0 / (1.0 + 2.0 * _log2_of_one_plus(distance(guess, gold) / unit))


def _log2_of_one_plus(ratio: Fraction) -> float:
    if ratio < 2**60:
        return math.log1p(float(ratio)) / math.log(2.0)
    return math.log2(ratio.numerator) - math.log2(ratio.denominator)


@reward(
    version=6,
    range=(-4.5, 5.0),
    as_published=["table"],
    isolation="inline",
    cases=[
        Case("<reasoning>\n6*12\n</reasoning>\n<answer>\n72\n</answer>\n", {"answer": "6*12 = 72\n#### 72"}, 1.0),
        Case("That makes $1,200.00.", {"answer": "1200"}, 1.0),
        Case("<answer>71</answer>", {"answer": "72"}, _OFF_BY_ONE),
        Case("<answer>-3</answer>", {"answer": "-2"}, _OFF_BY_ONE),
        Case("<answer>50%</answer>", {"answer": "0.5"}, 1.0),
        Case("I cannot tell.", {"answer": "72"}, 0.0),
        Case("<answer>72</answer>", {"answer": "unknown"}, None),
        Case(_WORKED, {"answer": "72"}, 5.0, {"table": "qwen3_4b"}),
        Case(_WORKED.replace("72", "1,200"), {"answer": "1200"}, -4.5, {"table": "qwen3_4b"}),
    ],
)
def proximity(completion: str, answer: str | list[str], *, table: Table | None = None, eos: str = _EOS) -> float | None:
    """How near the final answer is to the gold number, from 0 (no number) to 1 (right).

    score = 0.1 + 0.9 / (1 + 2 log2(1 + d/u)), with d = |answer - gold| exactly and u = min(1, |gold|), or 1 when the
    gold is 0. So 1 when right, 0.4 one off, 0.32 two off, 0.17 a hundred off, never below 0.1 for a number, and 0 for
    none. It is continuous, falls with the distance, and depends on the number alone: every spelling ("1,200",
    "$1200.00", "1.2e3") and every form that the verifier `gsm8k` reads scores the same. An answer that hedges between
    several numbers ("x=71, x=72", "71 \u00b1 1") is as good as its worst; of a list of golds the nearest counts.
    Abstains when the gold is not one number.

    With `table`, the stepped scores that three public notebooks pay (their `check_answer`), exactly, within
    [-4.5, 5]: they need `<start_working_out>...<end_working_out><SOLUTION>...</SOLUTION>` and never abstain.

    Args:
        completion: the text.
        answer: the gold: a number, its text, or a worked solution ending in "#### 72"; or a list of them.
        table: gemma3_1b, adv_llama3 or qwen3_4b.
        eos: the end-of-sequence token that table qwen3_4b allows after the block.
    """
    if table is not None:
        given = answer if isinstance(answer, list | tuple) else [answer]
        return max(score_answer(completion, gold_text(gold), table, eos) for gold in given) if given else None
    golds = gold_numbers(answer)
    if not golds:
        return None
    stated = final_answer(completion)
    if stated is None or not stated.numbers:
        return 0.0
    return _FLOOR + (1.0 - _FLOOR) * max(min(closeness(number, gold) for number in stated.numbers) for gold in golds)


@reward(
    name="proximity.match_format_exactly",
    version=1,
    as_published=True,
    range=(0.0, 3.0),
    isolation="inline",
    cases=[
        Case(_WORKED, {}, 3.0),
        Case(_WORKED + _EOS, {}, 3.0, {"table": "qwen3_4b"}),
        Case("<SOLUTION>72</SOLUTION>", {}, 0.0),
        Case("", {}, 0.0),
    ],
)
def match_format_exactly(completion: str, *, table: Table = "gemma3_1b", eos: str = _EOS) -> float:
    """3 when working-out and solution blocks stand in order and a line ends after the solution, else 0.

    Args:
        completion: the text.
        table: whose format: gemma3_1b and adv_llama3 need the opening tag at the start of a line; qwen3_4b does not
            need it (it is in the prompt) and allows `eos` after the solution.
        eos: that end-of-sequence token.
    """
    return 3.0 if solution_text(completion, table, eos) is not None else 0.0


@reward(
    name="proximity.match_format_approximately",
    version=1,
    as_published=True,
    range=(-4.0, 2.0),
    isolation="inline",
    cases=[
        Case(_WORKED, {}, 2.0),
        Case("<SOLUTION>72</SOLUTION>", {}, 0.0),
        Case("", {}, -2.0),
        Case("", {}, -4.0, {"table": "adv_llama3"}),
        Case("", {}, -3.0, {"table": "qwen3_4b"}),
    ],
)
def match_format_approximately(completion: str, *, table: Table = "gemma3_1b") -> float:
    """0.5 for each tag that occurs exactly once; otherwise -0.5 (gemma3_1b) or -1 (adv_llama3, qwen3_4b).

    The four tags are those of `proximity`'s tables; qwen3_4b leaves out the opening one.
    """
    return score_tags(completion, table)


@reward(
    name="proximity.check_numbers",
    version=1,
    as_published=True,
    range=(-2.5, 3.5),
    isolation="inline",
    cases=[
        Case(_WORKED, {"answer": "6*12 = 72\n#### 72"}, 1.5),
        Case(_WORKED, {"answer": "71"}, 0.0),
        Case(_WORKED, {"answer": "72"}, 3.5, {"table": "qwen3_4b"}),
        Case(_WORKED, {"answer": "71"}, -1.5, {"table": "qwen3_4b"}),
        Case("", {"answer": "72"}, 0.0),
        Case("", {"answer": "72"}, -2.5, {"table": "qwen3_4b"}),
    ],
)
def check_numbers(completion: str, answer: str, *, table: Table = "gemma3_1b") -> float:
    """Compares the first digits after `<SOLUTION>` with the gold, as published (equal, different, no number).

    gemma3_1b: 1.5, 0, 0. adv_llama3: 1.5, -0.5, 0. qwen3_4b: 3.5, -1.5, -2.5. What does not convert scores 0; that
    includes every gold with a comma, and the first two tables drop the guess's minus sign.
    """
    return score_number(completion, gold_text(answer), table)
