"""Known actions in environments that crash, hang or say too much: who pays for it, and what is learned from it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from forked_command import Forked
from patience import RUN

from grpo.core.env.episodes import episodes_of
from grpo.core.env.processes import EnvProcesses, place_of_envs
from grpo.core.env.worked import play_worked
from grpo.core.record.run_dir import RunDir, read_json
from grpo.plugins.host import Host

pytestmark = pytest.mark.slow

SOURCE = """
import ctypes, os, signal, time
import gymnasium
from grpo import EnvSpec

HAZARDS = {3: "crash", 5: "exit", 7: "hang", 9: "lock", 11: "raise", 12: "long"}

class Desk(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Text(1000)

    def reset(self, *, seed=None, options=None):
        self.seed = seed
        return f"Episode {seed}", {"demonstration": ("one", "two", "done")}

    def step(self, action):
        if action == "two":
            match HAZARDS.get(self.seed):
                case "crash": os.kill(os.getpid(), signal.SIGKILL)
                case "exit": os._exit(0)
                case "hang": time.sleep(600)
                case "lock": ctypes.PyDLL(None).sleep(600)
                case "raise": raise ValueError("no")
                case "long": return "word " * 200_000, 0.0, False, False, {}
        return "go on", 0.0, action == "done", False, {"success": True}

def rewarded(completion):
    return float(len(completion) % 2)

DESK = EnvSpec(name="desk", version=1, factory=Desk, max_turns=4)
"""
FATAL = {3, 5, 7, 9, 11}


@pytest.fixture
def desk(tmp_path: Path) -> Any:
    (tmp_path / "desk.py").write_text(SOURCE)
    return Host([]).env(f"{tmp_path}/desk.py:DESK")


def test_an_environment_that_ends_its_process_fails_its_own_episode_only(desk: Any) -> None:
    processes = EnvProcesses(desk, 2)
    played = [one for one in episodes_of(desk, "train", limit=14, unbounded=14) if one.index != 12]
    try:
        done = play_worked(partial(place_of_envs, desk, processes, 5.0), [(one, one.actions) for one in played])
    finally:
        processes.close()
    failed = {one.index for one, worked in zip(played, done, strict=True) if worked.failed}
    assert failed == FATAL
    assert all([turn.action for turn in one.turns] == ["one", "two", "done"] for one in done if not one.failed)


def test_a_run_outlives_what_environments_do_to_it_before_its_first_step(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(SOURCE.replace('7: "hang", 9: "lock", ', ""))
    run = tmp_path / "run"
    arguments = [
        *("run", "--env", f"{tmp_path}/desk.py:DESK", "--reward", f"{tmp_path}/desk.py:rewarded", "--limit", "14"),
        *("--env-processes", "2", "--steps", "1", "--prompts-per-step", "8", "--group-size", "2"),
        *("--set", "train.warmup_steps=2"),
        *("--max-completion-length", "8", "--eval-size", "0", "--model", str(tiny_model), "--out", str(run)),
    ]
    command = Forked(arguments, tmp_path / "said")
    assert command.wait(RUN) == 0, command.said
    assert (read_json(RunDir(run).state) or {})["status"] == "done"
    told = " ".join(command.said.split())
    assert "env 'desk' failed at 3 of 14 worked answers of the warm-up, and others take their place" in told, told


def test_a_worked_answer_is_no_longer_than_a_rollout(desk: Any) -> None:
    from grpo.core.policy.embedded import embedded_model_path
    from grpo.core.policy.load import load_tokenizer
    from grpo.core.rollout.turns.chat import turn_format
    from grpo.core.rollout.turns.play import Player, TurnLimits
    from grpo.core.train.sft.data import worked_answers

    tokenizer = load_tokenizer(str(embedded_model_path()))
    episodes = [one for one in episodes_of(desk, "train", limit=14, unbounded=14) if one.index in (11, 12, 13)]
    form = turn_format(tokenizer, episodes[0].prompt)
    player = Player(desk, tokenizer, form, TurnLimits(turns=4, tokens=128, seconds=60))
    rows, failed = worked_answers(episodes, tokenizer, 16, player)
    assert list(failed) == [0]
    assert "no" in failed[0]
    long, short = [tokenizer.decode(ids) for ids in rows["input_ids"]]
    assert short.endswith("done<|im_end|>")
    assert long.endswith("two<|im_end|>"), json.dumps(long[-200:])
    two = Player(desk, tokenizer, form, TurnLimits(turns=2, tokens=128, seconds=60))
    (ids,) = worked_answers(episodes[2:], tokenizer, 16, two)[0]["input_ids"]
    assert tokenizer.decode(ids).endswith("two<|im_end|>")
