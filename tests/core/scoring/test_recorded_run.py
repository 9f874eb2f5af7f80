"""What a run recorded is scored, judged and compared again, from its directory and from its files."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from grpo.core.cli.main import cli
from grpo.core.record.run_dir import RolloutRow, RunDir, create_run_dir, write_rollouts
from grpo.core.scoring.recorded_run import own_outcomes, read_recorded, rollouts_of
from grpo.plugins.errors import DatasetError, UsageError


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    locks = {"reward mine": {"kind": "reward", "name": "mine", "weight": 2.0}, "env e": {"kind": "env", "name": "e"}}
    recorded = create_run_dir(tmp_path / "run", {"env": "e"}, {"plugins": locks})
    for step in (1, 2):
        rows = [
            RolloutRow(
                step=step,
                group=0,
                prompt=json.dumps([{"role": "user", "content": "6 * 12?"}]),
                completion=text,
                tokens=3,
                finish_reason="stop",
                columns=json.dumps({"answer": "72"}),
                reward=2.0 * score,
                advantage=0.0,
                outcomes={"mine": ("score", score, None)},
                env="e",
            )
            for text, score in (("#### 72", 1.0), ("#### 71", 0.0))
        ]
        write_rollouts(recorded, step, rows)
    return recorded


def test_a_run_and_its_files_are_rows_with_their_columns(run: RunDir) -> None:
    rows = list(read_recorded(run.path))
    assert [(row.line, row.values["step"], row.completion.text) for row in rows] == [
        (1, 1, "#### 72"),
        (2, 1, "#### 71"),
        (3, 2, "#### 72"),
        (4, 2, "#### 71"),
    ]
    assert rows[0].completion.row["answer"] == "72"
    assert rows[0].values["prompt"] == [{"role": "user", "content": "6 * 12?"}]
    assert [row.values for row in read_recorded(run.rollouts)] == [row.values for row in rows]
    assert [row.values for row in read_recorded(run.rollouts / "step-000002.parquet")] == [r.values for r in rows[2:]]


def test_any_parquet_file_of_rows_is_read(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"completion": ["a", "b"], "answer": [1, 2]}), file)
    assert [(row.completion.text, row.completion.row["answer"]) for row in read_recorded(file)] == [("a", 1), ("b", 2)]
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"]}), file)
    with pytest.raises(DatasetError, match=r"rows\.parquet, row 1: it has no 'completion'"):
        list(read_recorded(file))
    file.write_bytes(b"rubbish")
    with pytest.raises(UsageError, match="cannot be read as Parquet"):
        list(read_recorded(file))


def test_the_scores_of_a_run_are_its_own(run: RunDir) -> None:
    outcomes, weights = own_outcomes(run.path, [rollout for _, rollout in rollouts_of(run.path)])
    assert weights == {"mine": 2.0}
    assert [outcome.score for outcome in outcomes["mine"]] == [1.0, 0.0, 1.0, 0.0]


def test_score_verify_and_diff_take_a_run(run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    out = tmp_path / "out.jsonl"
    done = CliRunner().invoke(cli, ["verify", "--verifier", "gsm8k", "--input", str(run.path), "--output", str(out)])
    assert done.exit_code == 0, done.output
    assert [json.loads(line)["verdict"]["ok"] for line in out.read_text().splitlines()] == [True, False, True, False]
    arguments = ["score", "--reward", "proximity", "--input", str(run.path), "--output", str(out)]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert json.loads(out.read_text().splitlines()[0])["scores"]["proximity"]["score"] == 1.0
    done = CliRunner().invoke(cli, ["diff", str(run.path), "--new", "gsm8k.correctness", "--json"])
    assert json.loads(done.output)["mean"] == [1.0, 1.0]
    done = CliRunner().invoke(cli, ["diff", str(out), "--new", "proximity"])
    assert "--old is missing: a file does not say" in str(done.exception)
    done = CliRunner().invoke(cli, ["diff", str(tmp_path / "nowhere"), "--new", "proximity"])
    assert "nowhere: No such file or directory. Name a run directory" in str(done.exception)


def test_a_run_without_rollouts_says_so(tmp_path: Path) -> None:
    recorded = create_run_dir(tmp_path / "run", {}, {})
    with pytest.raises(UsageError, match="has no rollouts yet"):
        list(read_recorded(recorded.path))
    with pytest.raises(UsageError, match="does not say which rewards it had"):
        own_outcomes(recorded.path, [])
