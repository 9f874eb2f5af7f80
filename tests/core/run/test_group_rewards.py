"""Rewards of groups in whole runs: what is recorded is what each recorded group scores again, whoever scored it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from forked_command import forked_together
from small_run import small_run

from grpo.core.env.episodes import Episode, in_groups
from grpo.core.record.browse import read_step, to_completion
from grpo.core.record.run_dir import open_run_dir, rollout_steps
from grpo.core.rollout.turns.play import completed
from grpo.core.rollout.types import Sampled
from grpo.core.scoring.scorer import Scorer
from grpo.plugins.host import Host

REWARD = """
from grpo import Component, Completion, reward, rubric

def among(completions):
    return [sum(len(other) >= len(text) for other in completions) / len(completions) for text in completions]

@reward(version=1, range=(0.0, 1.0), scope="group", isolation="thread")
def early(completions: list[str]) -> list[float]:
    return among(completions)

@reward(version=1, range=(0.0, 1.0), scope="group", isolation="inline")
def late(completions: list[Completion]) -> list[float]:
    assert len({(one.group, str(one.row.get("answer"))) for one in completions}) == 1
    return among([one.text for one in completions])

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def wordy(completion: str) -> float:
    return float(len(completion.split()) > 2)

gated = rubric(name="gated", version=1, components=[Component(wordy, gate=True), Component(early)])
"""


def test_neighbours_are_groups_and_each_completion_knows_its_number() -> None:
    episodes = [Episode(index, (), {}, None) for index in (5, 5, 9, 9)]
    starts = in_groups(episodes, 2, first=4)
    assert [one.group for one in starts] == [2, 2, 3, 3]
    assert [one.index for one in starts] == [5, 5, 9, 9]
    assert completed(starts[2], "text", Sampled((1,), (0.0,), "stop")).group == 3


def trained(model: Path, folder: Path, **settings: Any) -> Path:
    file = folder / "groups.py"
    file.write_text(REWARD, encoding="utf-8")
    rewards = [f"{file}:{name}" for name in ("early", "late", "gated")]
    settings = {"rollout": {"batch_size": 5}, **settings}
    small_run(folder / "run", model=str(model), rewards=rewards, train={"prompts_per_step": 3, "lr": 1e-3}, **settings)
    return folder / "run"


def again(run: Path, names: Sequence[str]) -> None:
    """Scores the recorded groups of each step again and compares with what the run recorded."""
    found = open_run_dir(run)
    assert rollout_steps(found) == [1, 2]
    with Scorer(Host.discover().rewards([f"{run.parent}/groups.py:{name}" for name in names])) as scorer:
        for step in rollout_steps(found):
            rollouts = read_step(found, step)[1]
            outcomes = scorer.score([to_completion(one) for one in rollouts])
            for name in names:
                scores = [outcome.score for outcome in outcomes[name]]
                assert scores == [one.outcomes[name].score for one in rollouts]
                assert None not in scores


@pytest.mark.slow
def test_a_run_scores_each_group_together_early_and_late_and_behind_a_gate(tiny_model: Path, tmp_path: Path) -> None:
    run = trained(tiny_model, tmp_path)
    again(run, ["early", "late", "gated"])
    rollouts = read_step(open_run_dir(run), 1)[1]
    assert [one.group for one in rollouts] == [0] * 4 + [1] * 4 + [2] * 4
    assert len({one.outcomes["early"].score for one in rollouts}) > 1
    assert all(one.outcomes["early"].score == one.outcomes["late"].score for one in rollouts)


@pytest.mark.slow
def test_an_environment_of_several_turns_has_groups_too(tiny_model: Path, tmp_path: Path) -> None:
    rollout = {"max_completion_length": 8, "max_turns": 2}
    run = trained(tiny_model, tmp_path, env="guess", dataset=None, rollout=rollout)
    again(run, ["early", "late"])


@pytest.mark.slow
def test_the_samples_of_a_problem_are_a_group_in_an_evaluation(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from grpo.core.cli.main import cli

    monkeypatch.chdir(tmp_path)
    Path("groups.py").write_text(REWARD, encoding="utf-8")
    words = f"eval --model {tiny_model} --env gsm8k:dataset=embedded --reward ./groups.py:late --size 3 -n 4"
    done = CliRunner().invoke(cli, [*words.split(), "--max-completion-length", "8", "--output", "rows.jsonl"])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert len(rows) == 12
    for first in range(0, 12, 4):
        texts = [row["completion"] for row in rows[first : first + 4]]
        expected = [sum(len(other) >= len(text) for other in texts) / 4 for text in texts]
        assert [row["scores"]["late"]["score"] for row in rows[first : first + 4]] == expected
    done = CliRunner().invoke(
        cli, ["score", "--reward", "./groups.py:late", "--input", "rows.jsonl", "--output", "again"]
    )
    assert "3 groups: rows with the same env and problem" in done.stderr
    assert [json.loads(line)["scores"] for line in Path("again").read_text().splitlines()] == [
        r["scores"] for r in rows
    ]


@pytest.mark.slow
def test_two_processes_score_whole_groups(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "groups.py").write_text(REWARD, encoding="utf-8")
    words = (
        f"run --env gsm8k:dataset=embedded --reward {tmp_path}/groups.py:early --reward {tmp_path}/groups.py:late "
        f"--model {tiny_model} --out {tmp_path}/run --steps 2 --prompts-per-step 2 --group-size 4 --eval-size 0 "
        "--max-completion-length 12"
    )
    forked_together(words.split(), tmp_path)
    again(tmp_path / "run", ["early", "late"])
