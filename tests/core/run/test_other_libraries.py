"""`grpo run` and `grpo eval` on environments of other libraries, unmodified, with the embedded model."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

pytestmark = pytest.mark.slow

GAME = '''
class Lamp:
    def reset(self, **kwargs):
        self.on = False

    def press(self) -> str:
        """Presses the switch."""
        self.on = True
        return "It is bright."

    def get_reward(self) -> float:
        return float(self.on)
'''


@pytest.mark.parametrize(
    ("env", "turns"),
    [
        ("gym:FrozenLake-v1", 3),
        ("reasoning_gym:chain_sum:max_digits=1,size=20", None),
        ("textarena:GuessTheNumber-v0:max_number=8", 3),
        ("trl:{folder}/lamp.py:Lamp:prompt=Light,size=9", 3),
    ],
)
def test_a_run_and_an_evaluation_go_through(env: str, turns: int | None, tmp_path: Path) -> None:
    from grpo.core.cli.main import cli
    from grpo.core.record.browse import read_step
    from grpo.core.record.run_dir import RunDir, read_metrics

    if env.startswith("reasoning_gym") and importlib.util.find_spec("reasoning_gym") is None:
        pytest.skip("reasoning-gym is not installed; in a checkout: make reasoning-gym")
    (tmp_path / "lamp.py").write_text(GAME)
    env, out = env.format(folder=tmp_path), tmp_path / "run"
    small = "--steps 2 --prompts-per-step 2 --group-size 2 --limit 4 --eval-size 2 --max-completion-length 8"
    arguments = ["run", "--env", env, *small.split(), "--out", str(out), "--quiet"]
    arguments += ["--set", f"rollout.max_turns={turns}"] if turns else []
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    rows = [row for row in read_metrics(RunDir(out)) if row["step"] > 0]
    assert [row["turns/failed"] for row in rows] == [0.0, 0.0]
    assert all(row["reward"] is not None for row in rows)
    _, rollouts = read_step(RunDir(out), 2)
    assert all(one.env and one.outcomes["environment"].outcome == "score" for one in rollouts)
    split = "train" if env.startswith("trl:") else "test"  # each of its rows asks the same
    command = ["eval", "--model", str(out), "--split", split, "--size", "2", "--json"]
    measured = CliRunner().invoke(cli, command, catch_exceptions=False)
    found = json.loads(measured.stdout)
    assert found["rewards"]["environment"]["values"] == 2
    if not env.startswith("trl:"):
        assert found["accuracy"]["values"] == 2, "whoever does not reach the goal in time has not reached it"


@pytest.mark.nightly
def test_several_environments_are_shown_listed_and_measured_one_by_one(tmp_path: Path) -> None:
    from grpo.core.cli.main import cli
    from grpo.core.record.run_dir import RunDir, read_metrics

    def grpo(*arguments: str) -> str:
        done = CliRunner().invoke(cli, list(arguments), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    envs = ["--env", "countdown:weight=2", "--env", "textarena:GuessTheNumber-v0:as=number", "--reward", "length"]
    small = "--env-reward number environment --set rollout.max_turns=3 --steps 2 --prompts-per-step 3 --group-size 2"
    small += " --limit 6 --eval-size 2 --max-completion-length 8 --save-every 1"
    told = grpo("run", *envs, *small.split(), "--out", str(tmp_path / "run"))
    assert "countdown: 67% of the prompts, 6 training rows" in told
    assert "rewards     countdown.length, number.environment" in told
    assert "number: held-out accuracy after 2 steps" in told
    rows = [row for row in read_metrics(RunDir(tmp_path / "run")) if row["step"] > 0]
    assert [row["env/countdown/share"] for row in rows] == [4 / 6, 4 / 6]
    assert [(row["env/number/turns"] > 1, row["env/countdown/turns"]) for row in rows] == [(True, 1.0)] * 2
    shown = json.loads(grpo("show", str(tmp_path / "run"), "--json"))
    assert {(one["env"], *one["scores"]) for one in shown} == {
        ("countdown", "countdown.length"),
        ("number", "number.environment"),
    }
    assert "countdown:weight=2, textarena:GuessTheNumber-v0:as=number" in grpo("runs", str(tmp_path), "--json")
    measured = json.loads(grpo("eval", "--model", str(tmp_path / "run"), "--size", "2", "--json"))
    assert [(one["env"], list(one["rewards"])) for one in measured] == [
        ("countdown", ["length"]),
        ("number", ["environment"]),
    ]
    one = json.loads(grpo("eval", "--model", str(tmp_path / "run"), "--env", "number", "--size", "2", "--json"))
    assert (one["env"], one["accuracy"]["values"], list(one["rewards"])) == ("number", 2, ["environment"])
