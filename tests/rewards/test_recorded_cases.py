"""Every recorded score of the published functions, row by row."""

from collections.abc import Callable
from typing import Any

import pytest

from grpo import RewardSpec
from grpo.rewards.gsm8k.proximity import check_numbers, match_format_approximately, match_format_exactly, proximity
from grpo.rewards.gsm8k.published import correctness, integer, soft_format, strict_format, xmlcount
from grpo.rewards.shape.format import format

DEMO: dict[str, RewardSpec] = {
    "correctness_reward_func": correctness,
    "int_reward_func": integer,
    "strict_format_reward_func": strict_format,
    "soft_format_reward_func": soft_format,
    "xmlcount_reward_func": xmlcount,
}
TABLES: dict[str, RewardSpec] = {
    "check_answer": proximity,
    "check_numbers": check_numbers,
    "match_format_approximately": match_format_approximately,
    "match_format_exactly": match_format_exactly,
}


def differences(rows: list[dict[str, Any]], score: Callable[[dict[str, Any]], Any]) -> list[tuple[Any, ...]]:
    wrong = []
    for row in rows:
        got = score(row)
        if got != pytest.approx(row["expected"], abs=1e-9):
            wrong.append((row["case"], row["function"], row.get("variant"), got, row["expected"]))
    return wrong


def columns(spec: RewardSpec, row: dict[str, Any]) -> list[Any]:
    return [row[column.name] for column in spec.columns]


def test_demo_rewards_score_as_published(read_cases: Callable[[str], list[dict[str, Any]]]) -> None:
    rows = read_cases("cases/willccb_cases.jsonl")

    def score(row: dict[str, Any]) -> Any:
        spec = DEMO[row["function"]]
        return spec(row["completion"], *columns(spec, row), variant=row["variant"])

    assert len(rows) >= 1600
    assert differences(rows, score) == []


def test_score_tables_score_as_published(read_cases: Callable[[str], list[dict[str, Any]]]) -> None:
    rows = read_cases("cases/unsloth_cases.jsonl")

    def score(row: dict[str, Any]) -> Any:
        spec = TABLES[row["function"]]
        return spec(row["completion"], *columns(spec, row), table=row["variant"])

    assert len(rows) >= 1800
    assert differences(rows, score) == []


def test_think_formats_score_as_published(read_cases: Callable[[str], list[dict[str, Any]]]) -> None:
    rows = read_cases("cases/think_format_cases.jsonl")
    assert len(rows) >= 150
    assert differences(rows, lambda row: format(row["completion"], variant=row["function"])) == []


def test_corrected_demo_rewards_differ_from_the_published_ones_only_upwards_on_right_answers(
    read_cases: Callable[[str], list[dict[str, Any]]],
) -> None:
    """No completion that a published variant calls right is called wrong by the corrected one."""
    rows = [r for r in read_cases("cases/willccb_cases.jsonl") if r["function"] == "correctness_reward_func"]
    paid = [row for row in rows if row["expected"] == 2.0 and correctness(row["completion"], row["answer"]) is not None]
    assert len(paid) > 90
    lost = [row["completion"] for row in paid if correctness(row["completion"], row["answer"]) != 2.0]
    assert lost == []
