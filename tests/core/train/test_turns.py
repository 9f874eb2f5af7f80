"""Training on rollouts of several turns: what is trained on is what was sampled, and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytestmark = pytest.mark.slow

ENVS = '''
import time
import gymnasium
from grpo import EnvSpec, hookimpl
from grpo.envs.text.spaces import AnyText

class Letters(gymnasium.Env):
    """Three turns; a vowel in the text is worth something. Every third episode fails in its second turn."""

    def __init__(self, fails):
        self.observation_space = self.action_space = AnyText()
        self.fails = fails

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn, self.seed = 0, seed or 0
        return f"Letters of {self.seed}.", {"demonstration": ["a", "e", "i"], "row": {"answer": "1"}}

    def step(self, action):
        self.turn += 1
        if self.fails and self.turn == 2 and self.seed % 3 == 0:
            raise RuntimeError("lost the connection")
        share = sum(letter in "aeiou" for letter in action) / max(len(action), 1)
        return f"Turn {self.turn} done.", share, self.turn == 3, False, {"success": share > 0.5}

@hookimpl
def grpo_envs():
    rewards, verifier = ("environment",), "environment"
    return [EnvSpec(n, 1, lambda n=n: Letters(n == "broken_letters"), rewards=rewards, verifier=verifier, max_turns=3)
            for n in ("letters", "broken_letters")]
'''


@pytest.fixture(scope="module")
def _letters(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Installs a distribution with two environments, found by its entry point."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "letters_envs.py").write_text(ENVS)
    info = folder / "letters_envs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: letters-envs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[grpo]\nletters = letters_envs\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield


def run(tiny_model: Path, out: Path, env: str, **settings: Any) -> Any:
    from grpo.core.config.schema import parse_config
    from grpo.core.run.job import start
    from grpo.core.run.progress import Silent
    from grpo.plugins.host import Host

    tree: dict[str, Any] = {"env": env, "model": str(tiny_model), "out": str(out), "evaluation": {"size": 4}}
    tree["train"] = {"steps": 2, "prompts_per_step": 3, "group_size": 4, "lr": 1e-3, "limit": 9}
    tree["rollout"] = {"max_completion_length": 5}
    tree["failures"] = {"stop_share": 0.9}
    for name, section in settings.items():
        tree[name] = {**tree.get(name, {}), **section}
    return start(parse_config(tree), Host.discover(), Silent())


@pytest.mark.usefixtures("_letters")
def test_sampling_and_training_agree_and_turns_are_recorded(tiny_model: Path, tmp_path: Path) -> None:
    from grpo.core.record.browse import read_step
    from grpo.core.record.run_dir import RunDir, read_metrics

    run(tiny_model, tmp_path / "run", "letters", rollout={"max_turns": 3}, loss={"beta": 0.1})
    metrics = [row for row in read_metrics(RunDir(tmp_path / "run")) if row["step"] > 0]
    assert max(row["sampling/sampling_logp_difference/max"] for row in metrics) < 1e-4
    assert all(row["turns/mean"] == 3.0 and row["turns/failed"] == 0.0 for row in metrics)
    assert all(row["completions/max_length"] <= 15 for row in metrics), "observations are no part of the length"
    _, rollouts = read_step(RunDir(tmp_path / "run"), 1)
    one = rollouts[0]
    assert [message["role"] for message in one.messages] == ["assistant", "user"] * 3
    assert one.outcomes["environment"].score == pytest.approx(sum(one.info["rewards"]))
    assert len({tuple(r.prompt[-1]["content"] for r in rollouts if r.group == g) for g in (0, 1, 2)}) == 3
    assert len({r.prompt[-1]["content"] for r in rollouts if r.group == 0}) == 1


@pytest.mark.usefixtures("_letters")
def test_a_failed_rollout_is_recorded_and_masked(tiny_model: Path, tmp_path: Path) -> None:
    from grpo.core.record.browse import read_step
    from grpo.core.record.run_dir import RunDir, read_metrics

    run(tiny_model, tmp_path / "run", "broken_letters", train={"steps": 3})
    rollouts = [one for step in (1, 2, 3) for one in read_step(RunDir(tmp_path / "run"), step)[1]]
    failed = [one for one in rollouts if "failure" in one.info]
    assert len(failed) == 12, "three of nine episodes, four members each"
    assert all("lost the connection" in one.info["failure"] and one.finish_reason == "error" for one in failed)
    assert all(one.reward is None and one.advantage == 0.0 for one in failed)
    assert all(one.outcomes["environment"].outcome == "failure" for one in failed)
    assert any(one.advantage != 0.0 for one in rollouts)
    metrics = [row for row in read_metrics(RunDir(tmp_path / "run")) if row["step"] > 0]
    assert sum(row["turns/failed"] for row in metrics) == pytest.approx(1.0)
    assert max(row["sampling/sampling_logp_difference/max"] for row in metrics) < 1e-4


@pytest.mark.usefixtures("_letters")
def test_an_environment_that_fails_too_often_stops_the_run_by_name(tiny_model: Path, tmp_path: Path) -> None:
    from grpo.plugins.errors import RunError

    with pytest.raises(RunError, match=r"of 12 rollouts of step \d failed in their environment.*lost the connection"):
        run(tiny_model, tmp_path / "run", "broken_letters", train={"steps": 3}, failures={"stop_share": 0.1})


@pytest.mark.usefixtures("_letters")
def test_a_run_of_several_turns_resumes_bit_for_bit(tiny_model: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from grpo.core.record.run_dir import RunDir, read_rollouts
    from grpo.core.run.job import resume
    from grpo.core.run.progress import Silent
    from grpo.plugins.host import Host

    settings: dict[str, Any] = {"output": {"save_every": 1}, "train": {"steps": 3, "warmup_steps": 1}}
    run(tiny_model, tmp_path / "whole", "letters", **settings)
    run(tiny_model, tmp_path / "cut", "letters", **settings)
    folder = RunDir(tmp_path / "cut")
    (folder.checkpoints / "checkpoint-3" / "complete.json").unlink()
    shutil.rmtree(folder.model)
    assert resume(tmp_path / "cut", Host.discover(), Silent()).status == "done"
    for step in (1, 2, 3):
        assert read_rollouts(RunDir(tmp_path / "whole"), step) == read_rollouts(folder, step)
    one, other = (
        AutoModelForCausalLM.from_pretrained(tmp_path / name / "model").state_dict() for name in ("whole", "cut")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.usefixtures("_letters")
def test_show_prints_turns_and_eval_plays_them(tiny_model: Path, tmp_path: Path) -> None:
    from grpo.core.cli.main import cli
    from grpo.core.scoring.rows import to_completion
    from grpo.rewards.environment import environment

    run(tiny_model, tmp_path / "run", "letters", train={"steps": 1})
    shown = CliRunner().invoke(cli, ["show", str(tmp_path / "run"), "--limit", "1"], catch_exceptions=False).output
    assert "turn 1  reward" in shown
    assert "environment: Turn 2 done." in shown
    as_json = CliRunner().invoke(cli, ["show", str(tmp_path / "run"), "--limit", "1", "--json"]).output
    assert len(json.loads(as_json)[0]["messages"]) == 6
    out = tmp_path / "eval.jsonl"
    arguments = ["eval", "--model", str(tmp_path / "run"), "--size", "3", "--output", str(out), "--json"]
    measured = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert measured.exit_code == 0, measured.output
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [len(row["completion"]) for row in rows] == [6, 6, 6]
    again = [environment(to_completion(row)) for row in rows]
    assert again == [row["scores"]["environment"]["score"] for row in rows]


@pytest.mark.usefixtures("_letters")
@pytest.mark.parametrize(
    ("env", "rollout", "why"),
    [
        ("letters", {"max_turns": 4}, "takes at most 3 turns"),
        ("letters", {"max_rollout_length": 4}, "less than one turn"),
        ("letters", {"max_rollout_length": 4000}, "has room for"),
        ("arithmetic", {"max_turns": 2}, "has only one turn"),
    ],
)
def test_budgets_that_cannot_work_are_refused(
    tiny_model: Path, tmp_path: Path, env: str, rollout: dict[str, int], why: str
) -> None:
    from grpo.plugins.errors import UsageError

    with pytest.raises(UsageError, match=why):
        run(tiny_model, tmp_path / "run", env, rollout=rollout)


def test_an_environment_with_tools_trains_and_its_demonstrations_call_them(tmp_path: Path) -> None:
    """The policy of two warm-up steps calls nothing yet; the prompts, the warm-up and the rollouts know the tool."""
    from grpo.core.config.schema import parse_config
    from grpo.core.record.browse import read_step
    from grpo.core.record.run_dir import RunDir, read_metrics
    from grpo.core.run.job import start
    from grpo.core.run.progress import Silent
    from grpo.plugins.host import Host

    tree = {
        "env": "python-tool:size=12,level=easy",
        "out": str(tmp_path / "run"),
        "train": {"steps": 1, "prompts_per_step": 2, "group_size": 2, "warmup_steps": 2},
        "rollout": {"max_completion_length": 8, "max_turns": 2},
        "evaluation": {"size": 2},
    }
    start(parse_config(tree), Host.discover(), Silent())
    run_dir = RunDir(tmp_path / "run")
    (_, (first, *others)) = read_step(run_dir, 1)
    assert len(others) == 3
    assert first.info["tool_calls"] == 0
    assert read_metrics(run_dir)[-1]["held_out/accuracy"] in (0.0, 0.5, 1.0)


def test_a_model_whose_template_knows_no_tools_is_refused_before_it_loads(tiny_model: Path, tmp_path: Path) -> None:
    from grpo.core.cli.main import cli
    from grpo.plugins.errors import UsageError

    with pytest.raises(UsageError, match="does not show tools to the policy"):
        run(tiny_model, tmp_path / "run", "python-tool:dataset=embedded,size=12")
    assert not (tmp_path / "run").exists()
    asked = ["eval", "--env", "python-tool:dataset=embedded,size=12", "--model", str(tiny_model)]
    done = CliRunner().invoke(cli, asked)
    assert done.exit_code != 0
    assert "does not show tools to the policy" in done.output + str(done.exception)
