"""The gold solution of every row of the built-in environments is accepted, and so are those of published data sets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from grpo import EnvSpec, validate
from grpo.core.check.gold.report import Validation
from grpo.envs.guess.spec import guess
from grpo.envs.wordle.spec import WORDS, wordle
from grpo.plugins.host import Host

pytestmark = pytest.mark.slow


def accepted(report: Validation, rows: int, best: float) -> None:
    """Asserts that every solution is accepted, and gets the best total that the default rewards give."""
    assert report.ok, str(report)
    assert (report.rows, report.silence_right) == (rows, 0)
    lowest = [scores.lowest for scores in report.rewards if not scores.reward.startswith("email.")]
    assert sum(score for score in lowest if score is not None) == best, str(report)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize(
    ("spec", "rows", "best"),
    [
        ("gsm8k", 1000, 1.5),
        *((f"gsm8k:level={level},size=200", 200, 1.5) for level in ("easy", "medium", "hard")),
        *((f"gsm8k:template={name},size=50", 50, 1.0) for name in ("solution", "think", "hash")),
        ("arithmetic", 1000, 4.0),
        ("arithmetic:template=hash,schedule=rising,size=50", 50, 4.0),
        ("countdown", 1000, 1.0),
        *((f"countdown:template={name},size=50", 50, 1.0) for name in ("solution", "think")),
        ("countdown:fewest=2,most=6,highest=20,size=200", 200, 1.0),
        ("email", 500, 4.0),
        ("email:ideal=true,size=100", 100, 4.0),
        ("code:size=20", {"train": 20, "test": 20}, 1.0),
        ("code:level=problems", {"train": 16, "test": 4}, 1.0),
        ("guess:highest=50,reminds=false", 200, 1.0),
        ("wordle:turns=3,known=true", 200, 1.0),
        ("python-tool:size=40", 40, 2.0),
    ],
)
def test_every_embedded_row_can_be_solved(spec: str, rows: int | dict[str, int], best: float, split: str) -> None:
    accepted(validate(spec, split=split), rows[split] if isinstance(rows, dict) else rows, best)


@pytest.mark.parametrize(
    ("spec", "column", "values"),
    [(guess, "number", range(1, 16)), (wordle, "word", WORDS)],
    ids=["guess", "wordle"],
)
def test_every_number_and_every_word_can_be_found(spec: EnvSpec, column: str, values: list[object]) -> None:
    accepted(validate(replace(spec, dataset=lambda split: [{column: one} for one in values])), len(values), 1.0)


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_published_row_of_gsm8k_can_be_solved(split: str, shared_data: Path) -> None:
    report = validate(f"gsm8k:dataset={shared_data / 'gsm8k'}", split=split)
    accepted(report, {"train": 7473, "test": 1319}[split], 1.5)


@pytest.mark.parametrize(
    ("file", "split", "size"),
    [
        pytest.param("humaneval/HumanEval.jsonl.gz", "train", 80, marks=pytest.mark.nightly),
        ("humaneval/HumanEval.jsonl.gz", "test", 16),
        pytest.param("mbpp/mbpp.jsonl", "train", 60, marks=pytest.mark.nightly),
        pytest.param("mbpp/mbpp.jsonl", "test", 97, marks=pytest.mark.nightly),
        ("mbpp/sanitized-mbpp.json", "test", 42),
    ],
)
def test_published_programs_pass_the_tests_of_their_rows(file: str, split: str, size: int, shared_data: Path) -> None:
    accepted(validate(f"code:dataset={shared_data / file}", split=split, size=size), size, 1.0)


@pytest.mark.parametrize(
    ("env", "row"),
    [
        ("gsm8k", {"question": "1 + 1?", "answer": "2"}),
        ("python-tool", {"question": "1 + 1?", "answer": "2"}),
        ("code", {"question": "Write two().", "tests": "assert two() == 2"}),
        ("countdown", {"numbers": [1, 1], "target": 2}),
        ("email", {"question": "Write."}),
    ],
)
def test_rows_of_a_file_know_their_lines(env: str, row: dict[str, object], tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text((json.dumps(row) + "\n") * 3, encoding="utf-8")
    rows = Host.discover().env(f"{env}:dataset={file}").rows("test")
    assert list(getattr(rows, "places", ())) == [f"{file}, line 3"]
