"""Objects on their way into a run: what travels to a worker process, what stays, and how the run is continued."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from grpo import Component, RewardSpec, reward, rubric
from grpo.core.config.python_objects import given_of, how_to_resume, refuse_missing
from grpo.core.config.schema import parse_config
from grpo.core.run.python.objects import LARGEST, PluginObjects
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host

RUN = Path("runs/mine")


@pytest.fixture(scope="module")
def installed() -> Host:
    return Host.discover()


@pytest.fixture
def host() -> Host:
    return Host([])


def given(host: Host, value: Any) -> tuple[RewardSpec, list[str]]:
    """Gives a reward; returns what the host has then, and what was said."""
    said: list[str] = []
    bound = host.reward(PluginObjects(host, said.append).ref("reward", value))
    return bound.spec, said


def test_a_function_that_can_travel_does(host: Host) -> None:
    limit = 3

    def near(completion: str) -> float:
        return float(len(completion) < limit)

    spec, said = given(host, near)
    assert (spec.isolation, said) == ("process", [])


def test_a_function_that_cannot_travel_stays_and_says_so(host: Host) -> None:
    lock, weights = threading.Lock(), bytes(LARGEST + 1)

    def guarded(completion: str) -> float:
        with lock:
            return 1.0

    def heavy(completion: str) -> float:
        return float(len(weights))

    spec, said = given(host, guarded)
    assert (spec.isolation, len(said)) == ("inline", 1)
    assert "cannot pickle '_thread.lock' object" in said[0]
    spec, said = given(host, heavy)
    assert (spec.isolation, len(said)) == ("inline", 1)
    assert "64 MiB" in said[0]


def test_the_component_of_a_rubric_stays_too(host: Host) -> None:
    lock = threading.Lock()

    @reward(version=1, range=(0.0, 1.0))
    def guarded(completion: str) -> float:
        with lock:
            return 1.0

    @reward(version=1, range=(0.0, 1.0))
    def brief(completion: str) -> float:
        return float(len(completion) < 9)

    both = rubric(name="both", version=2, components=[Component(guarded, 0.7, gate=True), Component(brief, 0.3)])
    spec, said = given(host, both)
    assert len(said) == 1
    assert [(part.spec.isolation, part.weight, part.gate) for part in spec.components] == [  # type: ignore[attr-defined]
        ("inline", 0.7, True),
        ("process", 0.3, False),
    ]
    assert (spec.name, spec.version, spec("hello")) == ("both", 2, 1.0)


def test_a_table_and_a_spec_stay_what_they_are(installed: Host) -> None:
    def near(completion: str) -> float:
        return 1.0

    objects = PluginObjects(installed, print)
    wanted = ["proximity:weight=2", {"name": near, "weight": 2}, near, installed.reward("length").spec]
    assert objects.refs("reward", wanted) == [
        "proximity:weight=2",
        {"name": "__main__/near", "weight": 2},
        "__main__/near",
        "grpo-kit/length",
    ]
    assert objects.refs("reward", near) == ["__main__/near"]
    assert objects.refs("reward", None) == []
    assert objects.names["reward"] == ["near", "grpo-kit/length"]


def test_a_run_is_continued_by_the_command_or_with_the_same_objects() -> None:
    plain = parse_config({"env": "gsm8k", "rewards": ["proximity:weight=2", "./mine.py:near"]})
    assert how_to_resume(plain, RUN) == "grpo run --resume runs/mine"
    refuse_missing(plain, RUN)
    config = parse_config(
        {
            "env": "__main__/Dice:sides=4",
            "rewards": ["proximity", {"name": "__main__/near", "weight": 2}],
            "env_rewards": {"Dice": ["__main__/far:scale=2", "__main__/near"]},
            "verifier": "__main__/right",
        }
    )
    assert given_of(config) == {"env": ["Dice"], "reward": ["near", "far"], "verifier": ["right"]}
    call = "grpo.train(resume='runs/mine', env=Dice, rewards=[near, far], verifier=right)"
    assert how_to_resume(config, RUN) == call
    with pytest.raises(UsageError) as refused:
        refuse_missing(config, RUN, {"env": ["Dice"], "reward": ["near"]})
    assert "without the reward 'far' and the verifier 'right'" in str(refused.value)
    assert call in str(refused.value)
