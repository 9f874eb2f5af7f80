"""The recorded data sets: every canonical solution is accepted, every stub rejected, every label reproduced."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from patience import tried_again

from grpo.plugins.pools import close_pools, pool_of
from grpo.rewards.code.allowance import Allowance
from grpo.rewards.code.judge import judge
from grpo.rewards.code.results import CodeResult
from grpo.rewards.code.task import Columns, task_of

NAMES = tuple(Columns.__dataclass_fields__)
Pairs = list[tuple[str, dict[str, Any]]]  # completions with their rows


@pytest.fixture(scope="module", autouse=True)
def _pools() -> Iterator[None]:
    yield
    close_pools()


@pytest.fixture(scope="module")
def human_eval(shared_data: Path) -> list[dict[str, Any]]:
    with gzip.open(shared_data / "humaneval" / "HumanEval.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def columns(row: dict[str, Any]) -> Columns:
    return Columns(**{name: row[name] for name in NAMES if name in row})


def judged(pairs: Pairs, *, stop: bool = True, seconds: float = 15.0) -> list[CodeResult]:
    """Judges completions of rows, all at once."""

    async def every() -> list[tuple[Any, CodeResult]]:
        pool = pool_of()
        allowance = Allowance(seconds=seconds, stop=stop)
        return await asyncio.gather(
            *(
                tried_again(partial(judge, pool, text, task_of(columns(row)), allowance=allowance))
                for text, row in pairs
            )
        )

    return [result for _, result in asyncio.run(every())]


def rejected(pairs: Pairs, results: list[CodeResult]) -> dict[str, str]:
    return {
        row["task_id"]: result.line()
        for (_, row), result in zip(pairs, results, strict=True)
        if result.outcome != "accepted"
    }


@pytest.mark.slow
def test_human_eval_accepts_every_canonical_solution_and_no_stub(human_eval: list[dict[str, Any]]) -> None:
    pairs = [(row["canonical_solution"], row) for row in human_eval]
    assert len(pairs) == 164
    assert rejected(pairs, judged(pairs)) == {}
    stubs = [("    return None\n", row) for row in human_eval]
    assert len(rejected(stubs, judged(stubs))) == 164


@pytest.mark.nightly
def test_mbpp_accepts_every_canonical_solution(shared_data: Path) -> None:
    rows = [json.loads(line) for line in (shared_data / "mbpp" / "mbpp.jsonl").read_text(encoding="utf-8").splitlines()]
    pairs = [(row["code"], row) for row in rows]
    assert len(pairs) == 974
    assert rejected(pairs, judged(pairs)) == {}


@pytest.mark.nightly
def test_sanitized_mbpp_accepts_every_canonical_solution(shared_data: Path) -> None:
    rows = json.loads((shared_data / "mbpp" / "sanitized-mbpp.json").read_text(encoding="utf-8"))
    pairs = [(row["code"], row) for row in rows]
    assert len(pairs) == 427
    assert rejected(pairs, judged(pairs)) == {}


@pytest.mark.slow
def test_mbpp_rejects_a_stub_except_where_its_own_tests_ask_for_nothing_more(shared_data: Path) -> None:
    """Every test of task 899 expects True, so the constant passes it; that is the data's weakness."""
    rows = [json.loads(line) for line in (shared_data / "mbpp" / "mbpp.jsonl").read_text(encoding="utf-8").splitlines()]
    kept = [row for row in rows if row["task_id"] in range(880, 910)]
    pairs = [(f"def {row['code'].rpartition('def ')[2].partition('(')[0]}(*given): return True", row) for row in kept]
    accepted = {row["task_id"] for row in kept} - set(rejected(pairs, judged(pairs)))
    assert accepted == {899}


@pytest.mark.core
def test_recorded_submissions_get_their_labels(shared_data: Path) -> None:
    cases = [json.loads(line) for line in (shared_data / "cases" / "submission_cases.jsonl").read_text().splitlines()]
    results = judged([(case["completion"], {"tests": case["tests"]}) for case in cases])
    assert {case["id"]: result.outcome == "accepted" for case, result in zip(cases, results, strict=True)} == {
        case["id"]: case["expected"] for case in cases
    }


@pytest.mark.slow
def test_recorded_completions_get_their_pass_rates(shared_data: Path) -> None:
    cases = [
        json.loads(line) for line in (shared_data / "cases" / "acecode_completions.jsonl").read_text().splitlines()
    ]
    results = judged([(case["completion"], {"tests": case["tests"]}) for case in cases], stop=False)
    assert {case["id"]: result.fraction for case, result in zip(cases, results, strict=True)} == {
        case["id"]: case["expected_pass_rate"] for case in cases
    }
