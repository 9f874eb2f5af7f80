"""`grpo.train`: objects as plugins, what is refused before it loads, stopping, resuming, a process left as it was."""

from __future__ import annotations

import functools
import json
import linecache
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from command import grpo as command
from gymnasium.spaces import Discrete, Text
from patience import RUN
from same_metrics import timeless_metrics

import grpo
from grpo.core.cli.main import cli
from grpo.plugins.errors import RunError, UsageError
from grpo.plugins.types import Verdict

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = {
    "dataset": "embedded",
    "steps": 4,
    "prompts_per_step": 2,
    "group_size": 2,
    "lr": 0.01,
    "max_completion_length": 8,
    "eval_size": 4,
    "save_every": 1,
    "quiet": True,
}


@pytest.fixture
def tiny(tiny_model: Path, tmp_path: Path) -> dict[str, Any]:
    """Settings of a run of four short steps."""
    return {"env": "gsm8k:size=40", **TINY, "model": tiny_model, "out": tmp_path / "run"}


def vowels(completion: str) -> float:
    return sum(letter in "aeiou" for letter in completion) / max(len(completion), 1)


def ends_early(completion: str, answer: str) -> Verdict:
    return Verdict(len(completion) < 5, str(len(completion)), f"not {answer}")


class Guess(gymnasium.Env[str, str]):
    """Asks for a letter, and takes any of five."""

    max_turns = 2

    def __init__(self, *, letters: str = "aeiou") -> None:
        self.observation_space = self.action_space = Text(1000)
        self._letters = letters

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._left = 2
        return f"Say one of {self._letters}.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._left -= 1
        found = any(letter in self._letters for letter in action)
        return "Once more.", float(found), self._left == 0, False, {"success": found}


class Pushed(gymnasium.Env[int, int]):
    """Takes numbers."""

    observation_space: Any = Discrete(2)
    action_space: Any = observation_space


def defined_in_a_cell(source: str) -> Any:
    """Defines a function as a notebook's cell does: it is in no file, and its source is known."""
    place = f"<cell {hash(source)}>"
    linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)
    values: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, place, "exec"), values)
    return values["brief"]


def test_what_is_wrong_with_the_call_is_said_before_anything_loads(tmp_path: Path) -> None:
    calls: list[tuple[dict[str, Any], str]] = [
        ({}, "grpo.train needs an environment"),
        ({"dataset": [3]}, "dataset, row 0 is an int"),
        ({"dataset": 9 * [{"q": "2 + 2?"}]}, "as in env='rows:prompt=COLUMN,answer=COLUMN'"),
        ({"env": "gsm8k", "warmup_steps": 2, "lr": 0}, "lr: input should be"),
        ({"env": ["gsm8k", "arithmetic"], "system": "Be brief."}, "system is for one environment"),
        ({"env": "gsm8k", "stesp": 3}, "no argument 'stesp'. Did you mean 'steps'?"),
        ({"env": "gsm8k", "reward": ["proximity"]}, "Did you mean 'rewards'?"),
        ({"env": "gsm8k", "train": {"lrr": 1}}, "unknown setting 'train.lrr'. Did you mean 'train.lr'?"),
        ({"env": "gsm8k", "lr": 1e-4, "train": {"lr": 1e-4}}, "'train.lr' is given twice"),
        ({"env": "gsm8k", "steps": 0}, "steps: input should be"),
        ({"env": "gsm8"}, "Did you mean 'gsm8k'?"),
        ({"env": "gsm8k", "rewards": "proximty"}, "Did you mean 'proximity'?"),
        ({"env": "gsm8k", "rewards": [vowels, vowels]}, "two rewards are named 'vowels'"),
        ({"env": "gsm8k", "rewards": [lambda text: 1.0]}, "the first parameter must be named 'completion'"),
        ({"env": "gsm8k", "rewards": [3]}, "expected a function, or what @reward makes of one, got int '3'"),
        ({"env": "gsm8k", "verifier": "gsm8"}, "Did you mean 'gsm8k'?"),
        ({"env": Path}, "the class 'Path' is not an environment"),
        ({"env": gymnasium.Env()}, "Give its class: Env."),
        ({"env": "gsm8k", "env_rewards": [vowels]}, "env_rewards is a dictionary"),
        ({"resume": tmp_path / "nothing"}, "does not exist"),
        ({"resume": 3}, "resume=3 is not a run"),
    ]
    for settings, says in calls:
        with pytest.raises(UsageError) as refused:
            grpo.train(**settings, out=tmp_path / "run", quiet=True) if "resume" not in settings else grpo.train(
                **settings
            )
        assert says in str(refused.value)
        assert len(refused.traceback) == 2, "a notebook would show each frame below the call"
        assert refused.value.__cause__ is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.core
def test_functions_and_tables_of_them_are_rewards_and_verifiers(
    tiny: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    lock = threading.Lock()

    def guarded(completion: str) -> float:
        with lock:
            return float(os.getpid())

    def counted(completions: list[str], **columns: list[Any]) -> list[float]:
        return [float(os.getpid()) for _ in completions]

    def longer(completion: str, least: int) -> bool:
        return len(completion) > least

    rewards: list[Any] = [{"name": vowels, "weight": 2}, guarded, counted, "length:as=brief"]
    rewards += [functools.partial(longer, least=2), lambda completion: len(completion) > 2]
    run = grpo.train(rewards=rewards, verifier=ends_early, **tiny)
    assert "reward 'guarded' cannot be sent to a worker process" in capsys.readouterr().err
    found = run.rollouts[-1]
    assert set(found["score.guarded"]) == {float(os.getpid())}
    assert float(os.getpid()) not in set(found["score.counted"])
    assert list(found["score.longer"]) == list(found["score.lambda"])
    assert list(found["score.longer"]) == [float(len(text) > 2) for text in found["completion"]]
    weighed = 2 * found["score.vowels"] + found["score.guarded"] + found["score.counted"] + found["score.brief"]
    weighed += found["score.longer"] + found["score.lambda"]
    assert list(found["reward"]) == pytest.approx(list(weighed))
    config = json.loads((run.path / "config.json").read_text())
    assert config["rewards"][:2] == [{"name": "__main__/vowels", "weight": 2}, "__main__/guarded"]
    assert config["verifier"] == "__main__/ends_early"
    assert run.metrics["accuracy"].notna().sum() == 4
    assert (run.status, run.step, run.before is None, run.after is None) == ("done", 4, False, False)


@pytest.mark.slow
def test_a_loss_and_an_advantage_of_a_script_train_and_are_asked_for_again(tiny: dict[str, Any]) -> None:
    @grpo.loss(version=1)
    def pushed(tokens: grpo.LossTokens) -> grpo.TokenCosts:
        assert tokens.mask.shape == tokens.logps.shape
        return grpo.TokenCosts(-tokens.advantages * tokens.logps, metrics={"worth": tokens.advantages.abs()})

    @grpo.advantage(version=1)
    def shared(scores: grpo.GroupScores) -> Any:
        return 0.25 * (scores.totals - scores.totals.nanmean(dim=1, keepdim=True)).sign()

    run = grpo.train(rewards=vowels, loss=pushed, advantage=shared, **{**tiny, "steps": 2})
    assert (run.config.loss.type, run.config.loss.advantage) == ("__main__/pushed", "__main__/shared")
    assert set(run.rollouts[1]["advantage"]) <= {-0.25, 0.0, 0.25}
    assert run.metrics["loss/worth"].dropna().iloc[0] == pytest.approx(0.25)
    versions = json.loads((run.path / "versions.json").read_text())["plugins"]
    assert {"loss pushed", "advantage shared"} <= {*versions}
    with pytest.raises(UsageError, match=r"cannot be continued without the loss 'pushed' and the advantage 'shared'"):
        grpo.train(resume=run, rewards=vowels, steps=3)
    longer = grpo.train(resume=run, rewards=vowels, loss=pushed, advantage=shared, steps=3)
    assert (longer.status, longer.step) == ("done", 3)


@pytest.mark.slow
def test_a_class_of_an_environment_is_played_and_pays_itself(tiny: dict[str, Any]) -> None:
    del tiny["dataset"]
    run = grpo.train(**{**tiny, "env": {"name": Guess, "options": {"letters": "aeiouy"}}}, train={"limit": 20})
    assert run.config.env == {"name": "__main__/Guess", "options": {"letters": "aeiouy"}}
    first = run.rollouts[1]
    assert first["prompt"][0][0]["content"] == "Say one of aeiouy."
    assert {len(messages) for messages in first["messages"]} == {4}
    assert set(first["score.environment"]) <= {0.0, 1.0, 2.0}


@pytest.mark.slow
def test_an_environment_without_texts_is_told_how_to_become_one(tiny: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r'gymnasium.register\("Pushed-v0", entry_point=Pushed\)'):
        grpo.train(**{**tiny, "env": Pushed, "dataset": None})


@pytest.mark.slow
def test_a_stopped_run_resumes_with_the_same_objects_and_with_nothing_else(
    tiny: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    presses = [signal.SIGINT]
    source = "def brief(completion):\n    return float(len(completion) < 20)\n"
    brief, changed_brief = defined_in_a_cell(source), defined_in_a_cell(source.replace("float(", "1.0 * float("))

    def pressed(completion: str) -> float:
        if presses and any((tmp_path / "run" / "rollouts").glob("*")):
            signal.raise_signal(presses.pop())  # in the second step
        return vowels(completion)

    pressed_spec = grpo.reward(version=1, isolation="inline")(pressed)
    whole = tmp_path / "whole"
    before = signal.getsignal(signal.SIGINT)
    stopped = grpo.train(rewards=[pressed_spec, brief], **tiny)
    assert signal.getsignal(signal.SIGINT) is before
    assert (stopped.status, stopped.step) == ("interrupted", 2)
    assert "continue with" in stopped._repr_html_()

    calls: list[tuple[dict[str, Any], str]] = [
        ({}, "grpo.train(resume='{run}', rewards=[pressed, brief])"),
        ({"rewards": pressed_spec}, "cannot be continued without the reward 'brief'"),
        ({"rewards": [vowels]}, "has no reward 'vowels'; it has: pressed, brief"),
        ({"rewards": ["brief"]}, "has the reward 'brief' of a script or a notebook. Give it itself, not its name"),
        ({"rewards": [pressed_spec, brief], "steps": 3}, "was started with steps = 4, not 3"),
        ({"rewards": [pressed_spec, brief], "env": "guess"}, "has no env 'guess'; it has: gsm8k"),
    ]
    for again, says in calls:
        with pytest.raises(UsageError) as refused:
            grpo.train(resume=stopped, **again)
        assert says.replace("{run}", str(stopped.path)) in str(refused.value)
    with pytest.raises(UsageError) as refused:
        cli(["run", "--resume", str(stopped.path)], standalone_mode=False)
    assert "cannot be continued without the reward 'pressed' and the reward 'brief'" in str(refused.value)
    assert f"grpo.train(resume='{stopped.path}', rewards=[pressed, brief])" in str(refused.value)
    assert stopped.status == "interrupted"

    capsys.readouterr()
    resumed = grpo.train(rewards=[pressed_spec, changed_brief], resume=stopped, **tiny)  # the cell, and resume
    assert (resumed.status, resumed.step) == ("done", 4)
    assert "since the run started, reward 'brief': its source has changed." in (told := capsys.readouterr().err)
    assert "reward pressed changed" not in told
    grpo.train(rewards=[pressed_spec, brief], **{**tiny, "out": whole})
    assert timeless_metrics(resumed.path) == timeless_metrics(whole)


@pytest.mark.slow
def test_a_second_stop_raises_and_the_run_resumes_too(tiny: dict[str, Any], tmp_path: Path) -> None:
    stops = True

    def pressed(completion: str) -> float:
        if stops and any((tmp_path / "run" / "rollouts").glob("*")):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return vowels(completion)

    pressed_spec = grpo.reward(version=1, isolation="inline")(pressed)
    before = state_of_the_process()
    with pytest.raises(KeyboardInterrupt):
        grpo.train(rewards=[pressed_spec], **tiny)
    assert changed(before, state_of_the_process()) == []
    stops = False
    assert grpo.load(tmp_path / "run").status == "interrupted"
    assert grpo.train(rewards=[pressed_spec], resume=tmp_path / "run", quiet=True).status == "done"


@pytest.mark.slow
def test_a_run_leaves_the_process_as_it_was_and_the_next_one_is_that_of_a_fresh_process(
    tiny: dict[str, Any], tiny_model: Path, tmp_path: Path
) -> None:
    import matplotlib

    def broken(completion: str) -> float:
        if "</answer>" not in completion:  # as in no gold solution, which would end the run before it starts
            raise ValueError("no")
        return 1.0

    before = state_of_the_process()
    backend = matplotlib.get_backend(auto_select=False)
    first = grpo.train(rewards=["length"], train={"warmup_steps": 2}, **tiny)
    assert changed(before, state_of_the_process()) == []
    assert matplotlib.get_backend(auto_select=False) == backend
    with pytest.raises(RunError) as stopped:
        grpo.train(rewards=[broken], **{**tiny, "out": tmp_path / "broken"})
    assert len(stopped.traceback) == 2, "a notebook would show each frame of the engine"
    assert changed(before, state_of_the_process()) == []
    random.seed(7)  # what a user does in between is not a part of a run
    second = grpo.train(rewards=["length"], train={"warmup_steps": 2}, **{**tiny, "out": tmp_path / "second"})
    script = "import grpo, json, sys; grpo.train(**json.loads(sys.argv[1]))"
    settings = {**tiny, "rewards": ["length"], "train": {"warmup_steps": 2}, "out": tmp_path / "fresh"}
    command = [sys.executable, "-c", script, json.dumps(settings, default=str)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=RUN, check=False)
    assert done.returncode == 0, done.stderr
    assert timeless_metrics(first.path) == timeless_metrics(second.path) == timeless_metrics(tmp_path / "fresh")


@pytest.mark.slow
def test_a_second_run_is_refused_while_one_goes_on(tiny: dict[str, Any]) -> None:
    said: list[str] = []

    @grpo.reward(version=1, isolation="inline")
    def impatient(completion: str) -> float:
        if not said:
            with pytest.raises(UsageError) as refused:
                grpo.train(rewards=["length"], **{**tiny, "out": tiny["out"].with_name("second")})
            said.append(str(refused.value))
        return float(len(completion) % 2)

    assert grpo.train(rewards=["length", impatient], **tiny).status == "done"
    assert "a run still goes on in this process" in said[0]
    assert not tiny["out"].with_name("second").exists()
    assert grpo.train(rewards=["length"], **{**tiny, "out": tiny["out"].with_name("third")}).status == "done"


@pytest.mark.slow
def test_a_run_may_be_started_from_any_thread(tiny: dict[str, Any]) -> None:
    done: list[grpo.Run] = []
    thread = threading.Thread(target=lambda: done.append(grpo.train(rewards=["length"], **tiny)))
    thread.start()
    thread.join()
    assert [run.status for run in done] == ["done"]


def state_of_the_process() -> dict[str, Any]:
    """What is everybody's in a process."""
    import datasets
    import numpy
    import torch
    from transformers.utils import logging as transformers

    import grpo.core.run.recorder
    import grpo.core.train.trainer  # noqa: F401 - importing is not a part of it

    loggers = [
        logging.root,
        *(one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)),
    ]
    return {
        "environ": dict(os.environ),
        "folder": Path.cwd(),
        "warnings": list(warnings.filters),
        "loggers": {one.name: (one.level, list(one.handlers), one.propagate) for one in loggers},
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook, sys.stdout, sys.stderr),
        "random": random.getstate(),
        "numpy": str(numpy.random.get_state()),
        "torch": torch.get_rng_state().tolist(),
        "torch settings": (
            torch.get_num_threads(),
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.cuda.cudnn_sdp_enabled(),
        ),
        "bars": (datasets.are_progress_bars_disabled(), transformers.is_progress_bar_enabled()),
        "verbosity": transformers.get_verbosity(),
    }


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Returns the names of what differs; new loggers, which come with imports, do not count."""
    after["loggers"] = {name: state for name, state in after["loggers"].items() if name in before["loggers"]}
    return [name for name in before if before[name] != after[name]]


@pytest.mark.slow
def test_rows_of_python_train_and_resume_from_their_file(tiny_model: Path, tmp_path: Path) -> None:
    rows = [{"question": f"{n} + {n}?", "answer": str(2 * n)} for n in range(20)]
    given: dict[str, Any] = {
        **TINY,
        "model": tiny_model,
        "out": tmp_path / "run",
        "steps": 2,
        "system": 'Be brief, please: "yes".',
    }
    del given["dataset"]
    assert grpo.train(dataset=rows, rewards=vowels, dry_run=True, **given) is None
    assert list(tmp_path.iterdir()) == []
    run = grpo.train(dataset=rows, rewards=vowels, **given)
    assert run.status == "done"
    asked = run.rollouts[1]["prompt"][0]
    assert asked[0] == {"role": "system", "content": 'Be brief, please: "yes".'}
    assert asked[1]["content"] in {row["question"] for row in rows}
    others: tuple[dict[str, Any], ...] = ({"system": "Be long."}, {"env": 'rows:system="Be long."'})
    for other in others:
        with pytest.raises(UsageError, match=r"env 'rows' with system=.Be long\..; it has system=.Be brief"):
            grpo.train(rewards=vowels, resume=run, steps=3, quiet=True, **other)
    given = {"dataset": rows, "rewards": vowels, "system": given["system"], "resume": run}
    again = grpo.train(**given, steps=3, quiet=True)
    assert (again.path, again.step) == (run.path, 3)
    with pytest.raises(UsageError, match="was started with dataset"):
        grpo.train(dataset=rows[1:], rewards=vowels, resume=run, quiet=True)
    measured = command("eval", "--model", str(run.path), "--size", "2")
    assert measured.returncode == 0
    assert "reward 'vowels' is not measured" in measured.stdout + measured.stderr
    assert "accuracy" in measured.stdout


@pytest.mark.slow
def test_what_a_call_is_told_names_its_keywords(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        grpo.train(env="guess", warmup_steps=2, rewards="gsm8k.correctness", out=tmp_path / "run", quiet=True)
    assert "--" not in str(refused.value)


def plays(task: Any, access: Any) -> str:
    """An agent that asks once; it goes to a process of its own by value."""
    import urllib.request

    body = json.dumps({"model": access.model, "messages": [{"role": "user", "content": task.instruction}]}).encode()
    header = {"Authorization": f"Bearer {access.key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{access.url}/v1/chat/completions", body, header)
    answer = json.load(urllib.request.urlopen(request, timeout=RUN))
    return str(answer["choices"][0]["message"]["content"])


@pytest.mark.slow
def test_an_agent_is_a_function_that_is_given_again_to_resume(tiny: dict[str, Any]) -> None:
    def asks(task: Any, access: Any) -> str:
        return plays(task, access)

    run = grpo.train(agent=asks, rewards="proximity", **{**tiny, "steps": 1})
    assert run.metrics["agent/calls"].iloc[-1] == 1
    with pytest.raises(UsageError, match=r"the agent 'asks'.*agent=asks"):
        grpo.train(resume=run, steps=2)
    assert grpo.train(resume=run, agent=asks, steps=2, quiet=True).step == 2


def test_an_agent_that_cannot_go_to_its_process_is_refused_before_anything_loads(tiny: dict[str, Any]) -> None:
    lock = threading.Lock()

    def locked(task: Any, access: Any) -> str:
        with lock:
            return ""

    with pytest.raises(UsageError, match="agent 'locked' cannot be sent to the process that runs its episodes"):
        grpo.train(agent=locked, **tiny)
    with pytest.raises(UsageError, match="what was given as an agent cannot be one"):
        grpo.train(agent=lambda task: "", **tiny)
