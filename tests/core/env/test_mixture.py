"""Several environments in one run: which rewards each gets, and what is refused before anything is loaded."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from grpo.core.config.schema import parse_config
from grpo.core.plan import Plan
from grpo.core.planning.decide import make_plan
from grpo.core.train.sft.data import run_order
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host

GSM8K, COUNTDOWN = "gsm8k:weight=3", "countdown:size=20"


@pytest.fixture(scope="module")
def host() -> Host:
    return Host.discover()


def plan_of(host: Host, *envs: str, **changes: Any) -> Plan:
    tree: dict[str, Any] = {"env": list(envs), "evaluation": {"size": 3}, "train": {"limit": 10, "steps": 4}}
    return make_plan(parse_config({**tree, **changes}), host)


def names(plan: Plan) -> dict[str, list[str]]:
    return {part.name: [reward.name for reward in part.rewards] for part in plan.envs}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_each_environment_has_its_own_rewards_episodes_and_share_of_the_prompts(host: Host) -> None:
    plan = plan_of(host, GSM8K, COUNTDOWN, "guess:as=numbers")
    assert names(plan) == {
        "gsm8k": ["gsm8k.proximity", "gsm8k.soft_format"],
        "countdown": ["countdown.countdown"],
        "numbers": ["numbers.environment"],
    }
    assert [verifier.name for verifier in plan.verifiers] == [
        "gsm8k.gsm8k",
        "countdown.countdown",
        "numbers.environment",
    ]
    assert [(len(part.train), len(part.held_out)) for part in plan.envs] == [(10, 3)] * 3
    asked = Counter(plan.train[number].env for number in run_order(plan))
    assert asked == {"gsm8k": 19, "countdown": 7, "numbers": 6}
    assert plan.config.rollout.max_turns == plan.envs[2].env.spec.max_turns


@pytest.mark.slow
def test_a_reward_goes_to_the_environments_whose_rows_have_its_columns(host: Host) -> None:
    plan = plan_of(host, GSM8K, COUNTDOWN, rewards=["length", "countdown:weight=2"])
    assert names(plan) == {"gsm8k": ["gsm8k.length"], "countdown": ["countdown.length", "countdown.countdown"]}
    plan = plan_of(host, GSM8K, COUNTDOWN, rewards=["countdown"])
    assert names(plan)["gsm8k"] == ["gsm8k.proximity", "gsm8k.soft_format"], "none fits: its own"
    plan = plan_of(host, GSM8K, COUNTDOWN, rewards=["length"], env_rewards={"gsm8k": ["length:limit=9,as=short"]})
    assert names(plan) == {"gsm8k": ["gsm8k.short"], "countdown": ["countdown.length"]}


def test_the_verifier_of_a_run_judges_where_the_rows_have_its_columns(host: Host) -> None:
    plan = plan_of(host, "gsm8k", verifier={"name": "math", "timeout": 9.0})
    assert [(one.name, one.timeout) for one in plan.verifiers] == [("math", 9.0)]
    plan = plan_of(host, GSM8K, COUNTDOWN, verifier="countdown:as=numbers")
    assert [one.name for one in plan.verifiers] == ["gsm8k.gsm8k", "countdown.numbers"]


def test_one_environment_alone_keeps_plain_names(host: Host) -> None:
    assert names(plan_of(host, "gsm8k")) == {"gsm8k": ["proximity", "gsm8k.soft_format"]}
    assert names(plan_of(host, "gsm8k", env_rewards={"gsm8k": ["length"]})) == {"gsm8k": ["length"]}


@pytest.mark.core
def test_a_resumed_run_makes_the_same_episodes(host: Host) -> None:
    envs, train = (
        (GSM8K, COUNTDOWN, "guess"),
        {"prompts_per_step": 40, "epochs": 3, "group_size": 2, "check_memory": False},
    )
    first = plan_of(host, *envs, train=train, evaluation={"size": 0})
    again = make_plan(parse_config(first.config.model_dump(mode="json")), host, fresh=False)
    assert again.train == first.train
    assert run_order(again) == run_order(first)


@pytest.mark.parametrize(
    ("envs", "changes", "why"),
    [
        (("gsm8k", "gsm8k:level=hard"), {}, "two environments are named 'gsm8k'.*as=gsm8k_2"),
        (("gsm8k", "guess:weight=0"), {}, "weight=0 must be above 0"),
        (("gsm8k", "guess"), {"dataset": "embedded"}, "gsm8k:dataset=embedded"),
        (("gsm8k", "guess"), {"env_rewards": {"gues": ["length"]}}, "Did you mean 'guess'"),
        (("gsm8k", "guess"), {"rewards": ["countdown"]}, "scores no environment of this run"),
        (("gsm8k", "guess"), {"rewards": ["lenght"]}, "Did you mean 'length'"),
        (("gsm8k", "guess"), {"verifier": "countdown"}, "judges no environment of this run: it reads the columns"),
        (("gsm8k",), {"verifier": "countdwn"}, "Did you mean 'countdown'"),
        (("gsm8k", "guess"), {"rollout": {"max_turns": 99}}, "takes at most"),
        ((), {}, "no environment"),
    ],
)
def test_what_cannot_work_is_refused(host: Host, envs: tuple[str, ...], changes: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        plan_of(host, *envs, **changes)
