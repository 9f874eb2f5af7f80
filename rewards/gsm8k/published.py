"""Implements the five GSM8K demo rewards, published and corrected: correctness, integer, both formats, xmlcount.

The variants "gist" and "unsloth_copy" score exactly as the two published texts do, quirks included; "corrected" (the
default) scores what they meant. See docs/rewards.md.
"""

from __future__ import annotations

from typing import Literal

from grpo.plugins._pattern import lazy_pattern
from grpo.plugins.decorators import reward
from grpo.plugins.types import Case
from grpo.rewards.numbers.answers import final_answer, gold_numbers, is_right
from grpo.rewards.numbers.numerals import read_number
from grpo.rewards.shape.xml_format import count_newline_tags, count_tags, one_of_each, soft_layout, strict_layout

Variant = Literal["corrected", "gist", "unsloth_copy"]
Correctness = Literal["corrected", "gist", "unsloth_copy", "verl.strict", "verl.flexible"]

_VERL_READS = 300
_VERL_STRICT = lazy_pattern(r"#### (-?[0-9.,]+)")
_VERL_NUMBER = lazy_pattern(r"-?[0-9.,]+")
_GOOD = "<reasoning>\n6 boxes of 12 make 6*12 = 72.\nSo 72.\n</reasoning>\n<answer>\n72\n</answer>\n"
_INLINE = "<reasoning>6 boxes of 12.</reasoning><answer>72</answer>"
_LONG = "<reasoning>\n" + "One more step. " * 100 + "\n</reasoning>\n<answer>\n72\n</answer>"


def tagged_answer(text: str) -> str:
    """Returns the text between the last `<answer>` and the `</answer>` after it, stripped; all if untagged."""
    return text.rpartition("<answer>")[2].partition("</answer>")[0].strip()


def published_gold(answer: object, variant: Correctness) -> str | None:
    """Returns the gold text as the published loader passes it on; a text without "####" has been through it already."""
    if answer is None:
        return None
    pieces = str(answer).split("####")
    if len(pieces) == 1:
        return pieces[0]
    gold = pieces[1].strip()
    if variant == "gist":
        return gold.replace(",", "").replace("$", "")
    return gold.replace(",", "") if variant.startswith("verl.") else gold


def verl_answer(text: str, variant: Literal["verl.strict", "verl.flexible"]) -> str | None:
    """Returns what verl takes as the answer, or None when it finds none."""
    tail = text[-_VERL_READS:]
    if variant == "verl.strict":
        matches = _VERL_STRICT.findall(tail)
        return matches[-1].replace(",", "") if matches else None
    return next((number for number in reversed(_VERL_NUMBER.findall(tail)) if number != "."), None)


@reward(
    name="gsm8k.correctness",
    version=4,
    as_published=["variant"],
    range=(0.0, 2.0),
    isolation="inline",
    cases=[
        Case(_GOOD, {"answer": "6*12 = 72\n#### 72"}, 2.0),
        Case("<answer>72.0</answer>", {"answer": "72"}, 2.0),
        Case("<answer>1080</answer>", {"answer": "#### 1,080"}, 2.0),
        Case("<answer>1080</answer>", {"answer": "#### 1,080"}, 0.0, {"variant": "unsloth_copy"}),
        Case("<answer>71</answer>", {"answer": "72"}, 0.0),
        Case("I do not know.", {"answer": "72"}, 0.0),
        Case("<answer>72</answer>", {"answer": "unknown"}, None),
        Case("That makes 72\n#### 72", {"answer": "#### 72"}, 1.0, {"variant": "verl.strict"}),
        Case("That makes 72\n####72", {"answer": "#### 72"}, 0.0, {"variant": "verl.strict"}),
        Case("That makes 72 clips", {"answer": "#### 72"}, 1.0, {"variant": "verl.flexible"}),
        Case("That makes 72.", {"answer": "#### 72"}, 0.0, {"variant": "verl.flexible"}),
    ],
)
def correctness(completion: str, answer: str | list[str], *, variant: Correctness = "corrected") -> float | None:
    """2 when the answer is right, else 0 (verl.strict, verl.flexible: 1 and 0).

    corrected: the final answer (any form that the verifier `gsm8k` knows) equals the gold number; abstains when the
    gold is not a number. gist, unsloth_copy: the text in the last `<answer>` block equals the gold text, character by
    character; gist first takes "," and "$" out of a gold that follows "####".
    verl.strict, verl.flexible: of the last 300 characters, the digits, commas and points after the last "#### ",
    without commas, or else the last such run anywhere with its commas; it must equal the gold text.
    Source: willccb's GSM8K demo, the copy of it in Unsloth's notebooks, and verl, re-implemented.
    """
    published = [published_gold(gold, variant) for gold in (answer if isinstance(answer, list | tuple) else [answer])]
    if variant == "verl.strict" or variant == "verl.flexible":
        return 1.0 if verl_answer(completion, variant) in published else 0.0
    if variant != "corrected":
        return 2.0 if tagged_answer(completion) in published else 0.0
    golds = gold_numbers(answer)
    if not golds:
        return None
    return 2.0 if is_right(final_answer(completion), *golds) else 0.0


@reward(
    name="gsm8k.integer",
    version=3,
    as_published=["variant"],
    range=(0.0, 0.5),
    isolation="inline",
    cases=[
        Case(_GOOD, {}, 0.5),
        Case("<answer>-1,080</answer>", {}, 0.5),
        Case("<answer>-1,080</answer>", {}, 0.0, {"variant": "gist"}),
        Case("<answer>7.5</answer>", {}, 0.0),
        Case("<answer>72²</answer>", {}, 0.0),
        Case("<answer>72²</answer>", {}, 0.5, {"variant": "gist"}),
        Case("", {}, 0.0),
    ],
)
def integer(completion: str, *, variant: Variant = "corrected") -> float:
    """0.5 when the text in the last `<answer>` block (the whole text if untagged) is an integer, else 0.

    corrected: it is one whole number and nothing else, in any spelling ("-72", "1,080", "$72", "72.0").
    gist, unsloth_copy: `str.isdigit` of it, so "²" passes and "-72" does not.
    """
    text = tagged_answer(completion)
    if variant != "corrected":
        return 0.5 if text.isdigit() else 0.0
    number = read_number(text)
    return 0.5 if number is not None and number.factor >= 1 and number.value.denominator == 1 else 0.0


@reward(
    name="gsm8k.strict_format",
    version=1,
    as_published=["variant"],
    range=(0.0, 0.5),
    isolation="inline",
    cases=[
        Case(_GOOD, {}, 0.5),
        Case(_GOOD, {}, 0.0, {"variant": "unsloth_copy"}),
        Case(_GOOD.strip(), {}, 0.5),
        Case(_GOOD.strip(), {}, 0.0, {"variant": "gist"}),
        Case(_INLINE, {}, 0.0),
        Case("72", {}, 0.0),
    ],
)
def strict_format(completion: str, *, variant: Variant = "corrected") -> float:
    """0.5 for the exact layout: each of the four tags alone on its line, `<reasoning>` then `<answer>`; else 0.

    corrected: each tag once, both blocks not blank, any line ends, with or without blank space around the whole.
    gist: needs one or two final newlines and none before; repeated tags and empty blocks pass.
    unsloth_copy: as gist, and neither block may hold a newline.
    """
    if variant != "corrected":
        return 0.5 if strict_layout(completion, multiline=variant == "gist") else 0.0
    text = completion.replace("\r\n", "\n").strip() + "\n"
    return 0.5 if one_of_each(text) and strict_layout(text, multiline=True) else 0.0


@reward(
    name="gsm8k.soft_format",
    version=1,
    as_published=["variant"],
    range=(0.0, 0.5),
    isolation="inline",
    cases=[
        Case(_INLINE, {}, 0.5),
        Case(_GOOD, {}, 0.5),
        Case(_GOOD, {}, 0.0, {"variant": "unsloth_copy"}),
        Case("\n" + _INLINE, {}, 0.5),
        Case("\n" + _INLINE, {}, 0.0, {"variant": "gist"}),
        Case("<answer>72</answer><reasoning>6*12</reasoning>", {}, 0.0),
        Case("", {}, 0.0),
    ],
)
def soft_format(completion: str, *, variant: Variant = "corrected") -> float:
    """0.5 when the text opens with a `<reasoning>` block and an `<answer>` block follows it; anything after; else 0.

    corrected: each tag once, both blocks not blank, blank space before allowed.
    gist: nothing at all before, only blank space between; repeated tags and empty blocks pass.
    unsloth_copy: as gist, and neither block may hold a newline.
    """
    if variant != "corrected":
        return 0.5 if soft_layout(completion, multiline=variant == "gist") else 0.0
    text = completion.lstrip()
    return 0.5 if one_of_each(text) and soft_layout(text, multiline=True) else 0.0


@reward(
    name="gsm8k.xmlcount",
    version=1,
    as_published=["variant"],
    isolation="inline",
    range=(float("-inf"), 0.5),
    cases=[
        Case(_GOOD, {}, 0.5),
        Case(_GOOD, {}, 0.5, {"variant": "gist"}),
        Case(_INLINE, {}, 0.5),
        Case(_INLINE, {}, 0.0, {"variant": "gist"}),
        Case(_LONG, {}, 0.5),
        Case(_LONG, {}, 0.501 - 0.001 * len(_LONG), {"variant": "gist"}),
        Case("<answer>72</answer> and so on", {}, 0.25 - 0.001 * 9),
        Case("72", {}, 0.0),
    ],
)
def xmlcount(completion: str, *, variant: Variant = "corrected") -> float:
    """0.125 for each of the four tags that occurs exactly once, less 0.001 per character after the answer.

    corrected: in [0, 0.5]; newlines around tags do not matter; what follows the last `</answer>`, stripped, is
    charged once, and the sum never falls below 0.
    gist, unsloth_copy: tags count only with their newlines; trailing text is charged twice, and without a final
    newline the whole text is: -1.35 for a good answer of 1,850 characters, with no lower bound.
    """
    if variant != "corrected":
        return count_newline_tags(completion)
    return count_tags(completion)
