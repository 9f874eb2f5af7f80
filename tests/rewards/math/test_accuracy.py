"""The reward `math`: verdicts as scores, and the published variants beside the functions that they follow."""

from typing import Any, Literal

import pytest
from patience import PATIENCE

from grpo.rewards.math import process
from grpo.rewards.math.accuracy import accuracy

TEXTS = [
    "72",
    "$72$",
    "#### 72",
    "<answer>72</answer>",
    "\\boxed{72}",
    "The answer is $72$",
    "\\boxed{71} or \\boxed{72}",
    "\\boxed{72} or \\boxed{71}",
    "\\boxed{72.0}",
    "\\boxed{72\\%}",
    "\\boxed{0.72}",
    "\\boxed{\\frac{144}{2}}",
    "\\boxed{x = 72}",
    "<think>\\boxed{71}</think> so \\boxed{72}",
    "<think>\\boxed{72}</think> so \\boxed{71}",
    "",
]
GOLDS = ["72", "$72$", "\\boxed{72}", "72\\%", "seventy-two", "x = 72"]


def test_a_verdict_becomes_a_score() -> None:
    assert accuracy("\\boxed{\\frac24}", "1/2") == 1.0
    assert accuracy("\\boxed{\\frac23}", "1/2") == 0.0
    assert accuracy("\\boxed{9^{9^{9}}}", "9^{9^{8}}") is None


def test_undecided_answers_may_cost_but_unusable_golds_never_do() -> None:
    assert accuracy("\\boxed{9^{9^{9}}}", "72") == 0.0
    assert accuracy("\\boxed{(1+x)^{10^9}}", "(x+1)^{10^9}") is None
    assert accuracy("\\boxed{(1+x)^{10^9}}", "(x+1)^{10^9}", undecided=0.0) == 0.0
    assert accuracy("\\boxed{72}", "", undecided=0.0) is None


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["trl.accuracy_reward", "trl.reasoning_accuracy_reward"])
def test_the_trl_variants_score_as_trl_does(variant: Any) -> None:
    from trl import rewards

    published = getattr(rewards, variant.removeprefix("trl."))
    for gold in GOLDS:
        completions = [[{"role": "assistant", "content": text}] for text in TEXTS]
        expected = published(completions, solution=[gold] * len(TEXTS))
        assert [accuracy(text, gold, variant=variant) for text in TEXTS] == expected, gold


def test_the_other_delimiters_of_the_reasoning_count_when_they_come_first() -> None:
    delimiters = ("</reasoning>", "</think>")
    text = "\\boxed{72}</think>\\boxed{71}</reasoning>\\boxed{72}"
    assert accuracy(text, "72", variant="trl.reasoning_accuracy_reward", delimiters=delimiters) == 1.0


def test_the_open_r1_variant_reads_any_gold_and_only_latex_answers() -> None:
    variant: Literal["open_r1.accuracy_reward"] = "open_r1.accuracy_reward"
    for gold in ("$72$", "72"):
        assert accuracy("\\boxed{72}", gold, variant=variant) == 1.0
        assert accuracy("\\boxed{71}", gold, variant=variant) == 0.0
        assert accuracy("72", gold, variant=variant) == 0.0
    assert accuracy("\\boxed{72}", "seventy-two", variant=variant) is None


@pytest.mark.slow
def test_a_variant_scores_what_exhausts_its_limit_as_wrong_unless_the_gold_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "WAIT", PATIENCE)
    slow = r"\sum_{k=1}^{9999} \sin(k^2)"
    options: dict[str, Any] = {"variant": "trl.accuracy_reward", "limit": 0.5}
    assert accuracy(rf"$\boxed{{{slow}}}$", "$72$", **options) == 0.0
    assert accuracy(r"$\boxed{x^2}$", f"${slow}$", **options) is None
    assert accuracy(r"$\boxed{x^2}$", f"${slow}$", undecided=0.0, **options) == 0.0
