"""Every recorded score of the functions that others publish, under the SPEC that docs/rewards.md gives them."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo.plugins.from_trl import from_trl
from grpo.plugins.host import Host
from grpo.plugins.types import Completion
from grpo.rewards.gsm8k.published import correctness
from grpo.rewards.math.accuracy import accuracy
from grpo.rewards.puzzles.countdown import countdown_score
from grpo.rewards.puzzles.knights import knights_and_knaves_score
from grpo.rewards.shape.cosine import cosine
from grpo.rewards.shape.format import format
from grpo.rewards.shape.length import overlong
from grpo.rewards.shape.repetition import repetition
from grpo.rewards.shape.units import Unit

EXAMPLE = Path(__file__).parents[3] / "examples" / "trl_rewards.py"
FORMATS = (
    *("trl.think_format_reward", "open_r1.format_reward", "open_r1.tag_count_reward"),
    "open_r1.reasoning_steps_reward",
)


def countdown_row(row: dict[str, Any]) -> float | None:
    truth = row["ground_truth"]
    return countdown_score(row["completion"], truth["target"], truth["numbers"], variant="tinyzero")


def knights_row(row: dict[str, Any]) -> float | None:
    return knights_and_knaves_score(row["completion"], row["ground_truth"], variant="logic_rl")


def gsm8k_row(row: dict[str, Any]) -> float | None:
    variant: Any = f"verl.{row['params']['method']}"
    return correctness(row["completion"], row["ground_truth"], variant=variant)


WILD = {
    "tinyzero.countdown.compute_score": (countdown_row, 40),
    "logic_rl.kk.compute_score": (knights_row, 70),
    "verl.gsm8k.compute_score": (gsm8k_row, 60),
}


@pytest.mark.parametrize("function", WILD)
def test_functions_found_in_the_wild_score_as_recorded(
    read_cases: Callable[[str], list[dict[str, Any]]], function: str
) -> None:
    score, least = WILD[function]
    rows = [row for row in read_cases("cases/wild_cases.jsonl") if row["function"] == function]
    assert len(rows) >= least
    assert [(row["id"], score(row)) for row in rows] == [(row["id"], row["expected"]) for row in rows]


def test_no_function_of_the_wild_is_left_out(read_cases: Callable[[str], list[dict[str, Any]]]) -> None:
    assert {row["function"] for row in read_cases("cases/wild_cases.jsonl")} == set(WILD)


def given(row: dict[str, Any]) -> list[Completion]:
    """The completions of a row of the authors' own tests, with their columns."""
    inputs = dict(row["inputs"])
    texts = [messages[0]["content"] for messages in inputs.pop("completions", [])]
    tokens = inputs.pop("completion_ids", [[]] * len(texts))
    columns = {name: values for name, values in inputs.items() if name == "solution"}
    return [
        Completion(
            texts[index] if texts else "x" * bool(tokens[index]),
            token_ids=tuple(tokens[index]),
            row={name: values[index] for name, values in columns.items()},
        )
        for index in range(len(tokens))
    ]


def settings(row: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = (row["factory_params"] or {}).get("kwargs", {})
    return options


def length_scores(row: dict[str, Any]) -> list[float | None]:
    options = settings(row)
    bounds = {"limit": options["max_completion_len"], "margin": options["soft_punish_cache"]}
    return [overlong(completion, **bounds) for completion in given(row)]


def repetition_scores(row: dict[str, Any]) -> list[float | None]:
    options = settings(row)
    unit: Unit = "tokens" if row["function"].startswith("trl.") else "words"
    return [
        repetition(completion, size=options["ngram_size"], max_penalty=options["max_penalty"], unit=unit)
        for completion in given(row)
    ]


def format_scores(row: dict[str, Any]) -> list[float | None]:
    return [format(completion.text, variant=row["function"]) for completion in given(row)]


def code_scores(row: dict[str, Any]) -> list[float | None]:
    options = settings(row)
    return [
        format(completion.text, variant="open_r1.code_format_reward", language=options.get("language", "python"))
        for completion in given(row)
    ]


COSINE = {
    "max_len": "limit",
    "min_value_wrong": "wrong_short",
    "max_value_wrong": "wrong_long",
    "min_value_correct": "right_long",
    "max_value_correct": "right_short",
}


def cosine_scores(row: dict[str, Any]) -> list[float | None]:
    options = {COSINE[name]: value for name, value in settings(row).items()}
    unit: Unit = "tokens" if row["function"].startswith("trl.") else "characters"
    return [
        cosine(completion, completion.row["solution"], variant=row["function"], unit=unit, **options)
        for completion in given(row)
    ]


def accuracy_scores(row: dict[str, Any]) -> list[float | None]:
    options: dict[str, Any] = {"delimiters": tuple(row["inputs"].get("reasoning_delimiters", ["</think>"]))}
    return [
        accuracy(completion.text, completion.row["solution"], variant=row["function"], **options)
        for completion in given(row)
    ]


def batch_scores(row: dict[str, Any]) -> list[Any]:
    scores: list[Any] = Host([]).reward(f"{EXAMPLE}:len_reward").call_together(given(row))
    return scores


BUILT_IN = {
    "trl.get_soft_overlong_punishment": length_scores,
    "open_r1.get_soft_overlong_punishment": length_scores,
    "trl.get_repetition_penalty_reward": repetition_scores,
    "open_r1.get_repetition_penalty_reward": repetition_scores,
    "open_r1.get_code_format_reward": code_scores,
    **dict.fromkeys(("trl.get_cosine_scaled_reward", "open_r1.get_cosine_scaled_reward"), cosine_scores),
    **dict.fromkeys(
        ("trl.accuracy_reward", "trl.reasoning_accuracy_reward", "open_r1.accuracy_reward"), accuracy_scores
    ),
    "open_r1.len_reward": batch_scores,
    **dict.fromkeys(FORMATS, format_scores),
}


# Its text comes with no tokens, and a reward of one completion takes these for unknown; TRL's own function, through the
# adapter, sees from its neighbour that they are known.
NO_TOKENS = {"auth-033": 0}


@pytest.mark.slow
def test_rewards_score_as_the_authors_own_tests_say(read_cases: Callable[[str], list[dict[str, Any]]]) -> None:
    rows = read_cases("cases/author_test_cases.jsonl")
    assert {row["function"] for row in rows} == set(BUILT_IN)
    for row in rows:
        got, wanted = BUILT_IN[row["function"]](row), list(row["expected"])
        if row["id"] in NO_TOKENS:
            assert got.pop(NO_TOKENS[row["id"]]) is None
            wanted.pop(NO_TOKENS[row["id"]])
        assert got == [None if score is None else pytest.approx(score, abs=1e-12) for score in wanted], row["id"]


@pytest.mark.slow
def test_trls_own_functions_score_through_the_adapter_as_its_tests_say(
    read_cases: Callable[[str], list[dict[str, Any]]],
) -> None:
    rewards = pytest.importorskip("trl.rewards")
    pytest.importorskip("math_verify")
    rows = [row for row in read_cases("cases/author_test_cases.jsonl") if row["function"].startswith("trl.")]
    assert len(rows) >= 20
    for row in rows:
        function = getattr(rewards, row["function"].removeprefix("trl."))
        if row["factory_params"] is not None:
            function = function(**settings(row))
        if "reasoning_delimiters" in row["inputs"]:
            delimiters = row["inputs"]["reasoning_delimiters"]
            function = functools.partial(function, reasoning_delimiters=delimiters)
        got = from_trl(function, version=1)(given(row))
        assert got == [None if score is None else pytest.approx(score, abs=1e-12) for score in row["expected"]], row[
            "id"
        ]
