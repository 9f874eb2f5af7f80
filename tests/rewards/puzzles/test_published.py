"""The linear searches match exactly what the published regular expressions match, on random soups of their tags."""

import random
import re

import pytest

from grpo.rewards.gsm8k.published import verl_answer
from grpo.rewards.gsm8k.score_tables import Table, solution_text
from grpo.rewards.shape.format import format
from grpo.rewards.shape.xml_format import soft_layout, strict_layout

SOUPS = 20_000
DOTALL_LINES = re.DOTALL | re.MULTILINE


def soups(pieces: list[str], seed: int) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(pieces, k=rng.randint(0, 14))) for _ in range(SOUPS)]


@pytest.mark.slow
@pytest.mark.parametrize("multiline", [True, False])
def test_strict_and_soft_layouts_match_their_expressions(multiline: bool) -> None:
    flags = re.DOTALL if multiline else 0
    strict = re.compile(r"^<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n$", flags)
    soft = re.compile(r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>", flags)
    whole = "<reasoning>\na\n</reasoning>\n<answer>\n7\n</answer>\n"
    parts = [
        "<reasoning>",
        "</reasoning>",
        "<answer>",
        "</answer>",
        "\n",
        "\n",
        "a",
        " ",
        "\x0b",
        "</reasoning>\n<answer>",
    ]
    lines = ["<reasoning>\n", "\n</reasoning>\n<answer>\n", "\n</answer>\n", "\n", "a", whole, "</reasoning>\n"]
    texts = soups(parts, 1) + ["<reasoning>" + text for text in soups(parts, 2)]
    texts += [whole[: len(whole) // 2] + text for text in soups(lines, 3)] + soups(lines, 4)
    hits = 0
    for text in texts:
        assert strict_layout(text, multiline=multiline) == bool(strict.match(text)), repr(text)
        assert soft_layout(text, multiline=multiline) == bool(soft.match(text)), repr(text)
        hits += bool(strict.match(text)) + bool(soft.match(text))
    assert hits > 500


@pytest.mark.parametrize(
    ("table", "expression"),
    [
        ("gemma3_1b", r"^\s*<start_working_out>.+?<end_working_out>.*?<SOLUTION>(.+?)</SOLUTION>\s*$"),
        ("qwen3_4b", r"<end_working_out>.*?<SOLUTION>(.+?)</SOLUTION>\s*(?:<\|endoftext\|>)?\s*$"),
    ],
)
def test_solution_block_is_the_one_that_the_expression_captures(table: Table, expression: str) -> None:
    compiled = re.compile(expression, DOTALL_LINES)
    parts = ["<start_working_out>", "<end_working_out>", "<SOLUTION>", "</SOLUTION>", "\n", "a", " ", "<|endoftext|>"]
    head = "<start_working_out>a<end_working_out>"
    texts = soups(parts, 5) + [head + text for text in soups(parts, 6)] + [head + text for text in soups(parts[2:], 7)]
    hits = 0
    for text in texts:
        match = compiled.search(text)
        assert solution_text(text, table, "<|endoftext|>") == (match[1] if match else None), repr(text)
        hits += match is not None
    assert hits > 500


def test_think_formats_match_their_expressions() -> None:
    trl = re.compile(r"^<think>(?!.*<think>)(.*?)</think>.*$", DOTALL_LINES)
    open_r1 = re.compile(r"^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$", DOTALL_LINES)
    parts = ["<think>", "</think>", "<answer>", "</answer>", "\n", "a"]
    lines = ["\n</think>\n<answer>\n", "\n</answer>", "\n", "a", "<think>"]
    texts = soups(parts, 8) + ["<think>" + text for text in soups(parts, 9)]
    texts += ["<think>\n" + text for text in soups(lines, 10)]
    hits = 0
    for text in texts:
        assert format(text, variant="trl.think_format_reward") == float(bool(trl.match(text))), repr(text)
        assert format(text, variant="open_r1.format_reward") == float(bool(open_r1.match(text))), repr(text)
        hits += bool(trl.match(text)) + bool(open_r1.match(text))
    assert hits > 500


def test_the_code_format_matches_its_expression() -> None:
    published = re.compile(r"^<think>\n.*?\n</think>\n<answer>\n.*?```python.*?```.*?\n</answer>$", DOTALL_LINES)
    lines = ["\n</think>\n<answer>\n", "\n</answer>", "\n", "a", "```python", "```", "``"]
    heads = ("<think>\n", "<think>\n\n</think>\n<answer>\n", "\n<think>\n")
    hits = 0
    for seed, head in enumerate(heads):
        for text in (head + soup for soup in soups(lines, 11 + seed)):
            found = bool(published.match(text))
            assert format(text, variant="open_r1.code_format_reward") == float(found), repr(text)
            hits += found
    assert hits > 500


def test_verls_answers_match_its_expressions() -> None:
    strict, flexible = re.compile(r"#### (\-?[0-9\.\,]+)"), re.compile(r"(\-?[0-9\.\,]+)")
    pieces = ["#### ", "####", "7", "2", ",", ".", "-", "$", " ", "a", "\n", "b" * 290]
    hits = 0
    for text in soups(pieces, 15):
        marked = strict.findall(text[-300:])
        wanted = marked[-1].replace(",", "").replace("$", "") if marked else None
        assert verl_answer(text, "verl.strict") == wanted, repr(text)
        numbers = [number for number in flexible.findall(text[-300:]) if number != "."]
        assert verl_answer(text, "verl.flexible") == (numbers[-1] if numbers else None), repr(text)
        hits += wanted is not None
    assert hits > 500
