"""Texts made to hurt: nothing raises, nothing leaves its range, and the time grows no faster than the text."""

import itertools
import typing
from collections.abc import Iterator

import pytest
from patience import little_work

from grpo import RewardSpec, VerifierSpec
from grpo.rewards import grpo_rewards, grpo_verifiers

SIZE = 120_000
"""A linear reading of so many characters takes milliseconds, a quadratic one minutes."""
SHORT = SIZE // 40
PIECES = [
    *(
        "9",
        "9,",
        "1,000",
        "1.",
        "1/",
        "1 ",
        "1e",
        "-",
        "- ",
        "$",
        "(",
        "{",
        "=",
        "= 1 ",
        "so ",
        "1 or ",
        "x^1",
        "1%",
        "_",
    ),
    *(
        "\x00",
        "\ud800",
        "\u00bd",
        "\u0667",
        "\u00b2",
        "10\u00b2",
        " ",
        "\t",
        "\n",
        "\r\n",
        ". ",
        "1. ",
        "Step 1",
        "Step ",
    ),
    *(
        "First,",
        "#",
        "####",
        "####\n",
        "#### x\n",
        "<answer>",
        "</answer>",
        "<answer></answer>",
        "<answer>\n",
        "<SOLUTION>",
    ),
    *("</SOLUTION>", "<SOLUTION>a", "</SOLUTION> ", "\\boxed{", "\\boxed{}", "\\boxed{ ", "<<", "<<a", "<<1>>"),
    *("\\frac{1}{", "\\text{", "1\\,", "answer is ", "answer ", "answer:\n", "A:\n", "A: x ", "<reasoning>"),
    *("</reasoning><answer>", "</reasoning> ", "\n</reasoning>\n<answer>\n", "\n</answer>\n", "<think>", "</think>"),
    *("</think>\n<answer>\n", "<start_working_out>", "<start_working_out>a<end_working_out>"),
    *("<end_working_out><SOLUTION>", "1 x 10^", "1e9"),
]
HEADS = [
    "",
    "<answer>",
    "#### ",
    "<reasoning>\n",
    "<think>\n",
    "<SOLUTION>",
    "<start_working_out>a<end_working_out><SOLUTION>1",
]
NUMBERS = ["1e999999999", "-1e-999999999", "9" * SIZE, "0." + "3" * SIZE, "72." + "0" * SIZE, "1/" + "7" * SIZE]
NUMBERS += ["1e" + "9" * SIZE, "1" + ",000" * (SIZE // 4), "1" + "0" * SIZE]


SAME_READING = {"arithmetic", "email", "gsm8k", "gsm8k.correctness", "text_match"}
SAME_READING |= {"email.exact", "email.length", "email.signature"}
"""What reads texts just as `proximity` or `math` does, or the parts of a rubric, gets short ones here, to save time."""
READ_AS_PROXIMITY = {"arithmetic", "gsm8k", "gsm8k.correctness"}
"""What finds a number in a text as `proximity` does gets few heads, too."""


def longest(spec: RewardSpec | VerifierSpec) -> int:
    return SHORT if spec.name in SAME_READING else SIZE


def settings() -> Iterator[tuple[RewardSpec | VerifierSpec, dict[str, str]]]:
    specs: list[RewardSpec | VerifierSpec] = [*grpo_rewards(), *grpo_verifiers()]
    for spec in specs:
        # The judge needs an endpoint (test_judge_injection.py), `math` computes (test_math_hostile.py), `code` runs
        # programs (test_code_extraction.py has the texts), `environment` reads none.
        if spec.name in ("code", "cosine", "environment", "judge", "math"):
            continue
        if not any(option.name == "variant" for option in spec.options):
            yield spec, {}
        for option in spec.options:
            if option.name in ("variant", "table"):
                kinds = [
                    literal for part in typing.get_args(option.type) for literal in typing.get_args(part) or (part,)
                ]
                yield from ((spec, {option.name: value}) for value in kinds if isinstance(value, str))


SETTINGS = list(settings())


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "options"), SETTINGS, ids=[f"{s.kind}-{s.name}-{o}" for s, o in SETTINGS])
def test_no_text_hangs_raises_or_leaves_the_range(spec: RewardSpec | VerifierSpec, options: dict[str, str]) -> None:
    columns = ["72"] * len(spec.columns)
    size = longest(spec)
    heads = HEADS[: 2 if spec.name in READ_AS_PROXIMITY else None]
    texts = [head + piece * (SHORT // len(piece)) for head in heads for piece in PIECES]
    texts += [head + piece * (size // len(piece)) for head, piece in zip(itertools.cycle(HEADS[:2]), PIECES)]
    texts += [f"<answer>{number}</answer>" for number in NUMBERS]
    texts += [f"<start_working_out>a<end_working_out><SOLUTION>{number}</SOLUTION>" for number in NUMBERS]
    for text in texts:
        with little_work(text[:60]):
            result = spec(text, *columns, **options)
        if isinstance(spec, RewardSpec):
            assert result is None or spec.range[0] <= result <= spec.range[1], text[:60]


@pytest.mark.nightly
@pytest.mark.parametrize("spec", [s for s, o in SETTINGS if s.columns and not o], ids=lambda s: f"{s.kind}-{s.name}")
def test_no_gold_hangs_or_raises(spec: RewardSpec | VerifierSpec) -> None:
    for gold in itertools.chain((piece * (longest(spec) // len(piece)) for piece in PIECES), NUMBERS):
        with little_work(gold[:60]):
            spec("<answer>72</answer>", *[gold] * len(spec.columns))


def test_megabytes_of_digits_cost_no_more_than_reading_them() -> None:
    proximity = next(spec for spec in grpo_rewards() if spec.name == "proximity")
    with little_work("digits"):
        assert proximity(f"<answer>{'9' * 5_000_000}</answer>", "72") > 0.1
