"""The host binds SPECs to what a run uses, and observers cannot harm a run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from grpo import Completion, EnvSpec
from grpo.plugins._host.entry_points import Entry
from grpo.plugins.errors import UsageError
from grpo.plugins.events import Event, RunEnded, RunStarted, StepEnded
from grpo.plugins.host import Host

STEP = StepEnded("runs/x", 3, {"reward": 1.0})


def test_a_reward_is_bound_to_options_weight_alias_and_timeout(near_entry: Entry) -> None:
    bound = Host([near_entry]).reward("near-dist/near@2:tolerance=0.5,weight=2,as=close,timeout=1.5")
    assert (bound.name, bound.weight, bound.timeout, bound.options) == ("close", 2.0, 1.5, {"tolerance": 0.5})
    assert bound.distribution == "near-dist"
    assert bound.call(Completion("5", row={"answer": "4"})) == 0.5


def test_a_reward_without_settings_keeps_those_of_its_author(near_entry: Entry) -> None:
    bound = Host([near_entry]).reward("near")
    assert (bound.name, bound.weight, bound.timeout, dict(bound.options)) == ("near", 1.0, 3.0, {})


def test_text_and_table_bind_alike(near_entry: Entry) -> None:
    host = Host([near_entry])
    table = {"name": "near", "weight": 2, "as": "close", "timeout": 5, "options": {"tolerance": 0.05}}
    assert host.reward(table) == host.reward("near:tolerance=0.05,weight=2,as=close,timeout=5")


def test_two_rewards_of_one_name_are_refused(near_entry: Entry) -> None:
    host = Host([near_entry])
    with pytest.raises(UsageError, match=r"two rewards are named 'near'.*near:as="):
        host.rewards(["near", "near:tolerance=0.5"])
    with pytest.raises(UsageError, match="two rewards are named 'x'"):
        host.rewards(["near:as=x", {"name": "near", "as": "x"}])
    assert [reward.name for reward in host.rewards(["near", "near:as=close,tolerance=0.5"])] == ["near", "close"]


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("verifier", "near_verifier:weight=2", "verifiers take no 'weight'"),
        ("env", "e:timeout=2", "envs take no 'timeout'"),
        ("sandbox", "s:as=x", "sandboxes take no 'as'"),
    ],
)
def test_reserved_keys_that_mean_nothing_are_refused(near_entry: Entry, kind: str, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        getattr(Host([near_entry]), kind)(text)


ENV_AND_SANDBOX = """
import inspect
from grpo.plugins._spec.signature import options_of

class Pool:
    def __init__(self, size): self.size = size

def make(*, size: int = 3):
    return Pool(size)

def rows(split, *, size: int = 3):
    return [{"n": n, "split": split} for n in range(size)]

@reward(version=1)
def near(completion: str) -> float:
    "Of env-dist."
    return 0.0

@verifier(version=1)
def judge(completion: str) -> Verdict:
    return Verdict(True)

@hookimpl
def grpo_envs():
    return [EnvSpec("e", 1, make, options=options_of(make), dataset=rows, rewards=("near:weight=0.5",),
                    verifier="judge"),
            EnvSpec("bare", 1, make, options=options_of(make))]

@hookimpl
def grpo_sandboxes():
    return [SandboxSpec("s", 1, make, options=options_of(make))]

@hookimpl
def grpo_rewards():
    return [near]

@hookimpl
def grpo_verifiers():
    return [judge]
"""


@pytest.fixture
def env_host(make_entry: Callable[..., Entry], near_entry: Entry) -> Host:
    return Host([make_entry(ENV_AND_SANDBOX, distribution="env-dist"), near_entry])


def test_an_environment_is_bound_with_its_rows(env_host: Host) -> None:
    env = env_host.env("e:size=2,as=mine,weight=3")
    assert (env.name, env.weight, env.make().size) == ("mine", 3.0, 2)
    assert env.rows("test") == [{"n": 0, "split": "test"}, {"n": 1, "split": "test"}]
    assert env_host.env("bare").rows("test") is None


def test_a_sandbox_is_bound(env_host: Host) -> None:
    assert env_host.sandbox("s:size=9").make().size == 9


def test_default_rewards_are_those_of_the_environments_distribution(env_host: Host) -> None:
    env = env_host.env("e")
    assert isinstance(env.spec, EnvSpec)
    [reward] = env_host.default_rewards(env)
    assert (reward.distribution, reward.weight) == ("env-dist", 0.5)
    verifier = env_host.default_verifier(env)
    assert verifier is not None
    assert verifier.name == "judge"
    assert env_host.default_rewards(env_host.env("bare")) == []
    assert env_host.default_verifier(env_host.env("bare")) is None


OBSERVER = """
seen = []

@hookimpl
def grpo_observe(event):
    seen.append(event)
    {action}

@hookimpl
def grpo_rewards():
    return []
"""


def test_observers_see_every_event(make_entry: Callable[..., Entry]) -> None:
    made = make_entry(OBSERVER.format(action="pass"))
    module: Any = made.load()
    host = Host([Entry(made.distribution, "1", made.name, lambda: module)])
    events: list[Event] = [RunStarted("runs/x", {}), STEP, RunEnded("runs/x", 3, "done")]
    for event in events:
        host.observe(event)
    assert module.seen == events
    assert host.problems == ()


@pytest.mark.parametrize("action", ["raise ValueError('no luck')", "raise SystemExit(4)"])
def test_a_failing_observer_is_told_once_and_stops_nothing(
    make_entry: Callable[..., Entry], caplog: pytest.LogCaptureFixture, action: str
) -> None:
    bad = make_entry(OBSERVER.format(action=action), distribution="bad-dist")
    good = make_entry(OBSERVER.format(action="pass"), distribution="good-dist")
    module: Any = good.load()
    host = Host([bad, Entry("good-dist", "1", "rewards", lambda: module)])
    with caplog.at_level(logging.WARNING):
        host.observe(STEP)
        host.observe(STEP)
    assert len(module.seen) == 2
    [problem] = host.problems
    assert (problem.state, problem.distribution) == ("observer", "bad-dist")
    assert "grpo_observe raised" in problem.line
    assert "Traceback" in problem.traceback
    assert len(caplog.records) == 1


def test_ctrl_c_in_an_observer_is_the_users(make_entry: Callable[..., Entry]) -> None:
    with pytest.raises(KeyboardInterrupt):
        Host([make_entry(OBSERVER.format(action="raise KeyboardInterrupt"))]).observe(STEP)
