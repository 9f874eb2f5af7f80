"""The episodes of a run: rows first, as many made episodes as the steps want, rewards for each environment."""

from __future__ import annotations

from typing import Any

import pytest
from endless import Endless

from grpo.core.config.schema import RunConfig, parse_config
from grpo.core.env.mixture import RunEnv
from grpo.core.planning.facts import gather_facts
from grpo.core.planning.rows import StepsPart, read_rows, refuse_no_demonstrations, start_envs
from grpo.plugins._host.entry_points import Entry
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host


def plans(steps: StepsPart, **tree: Any) -> tuple[RunConfig, tuple[RunEnv, ...]]:
    config = parse_config({"env": "endless", "evaluation": {"size": 0}, **tree})
    facts = gather_facts(config, Host([Entry("endless-dist", "1.0", "endless", Endless)]))
    rows = read_rows(config, facts)
    assert rows == {}, "it has none"
    return config, start_envs(config, facts, rows, steps)[0]


@pytest.fixture
def level(tmp_path: Any) -> str:
    (tmp_path / "mine.py").write_text(
        "from grpo import reward\n\n"
        '@reward(version=1, isolation="inline")\n'
        "def level(completion: str) -> float:\n    return 1.0\n"
    )
    return f"{tmp_path}/mine.py:level"


def test_an_environment_makes_as_many_episodes_as_the_steps_want(level: str) -> None:
    for steps, made in ((StepsPart(1, None), 1000), (StepsPart(200, None), 1600), (StepsPart(200, 3), 3)):
        _, (part,) = plans(steps, rewards=[level])
        assert len(part.train) == made
        assert [reward.name for reward in part.rewards] == ["level"]


def test_an_environment_without_rewards_is_refused() -> None:
    with pytest.raises(UsageError, match=r"env 'endless' has no default rewards\. Name at least one with --reward"):
        plans(StepsPart(1, 2))


def test_a_warm_up_wants_one_worked_answer_at_least(level: str) -> None:
    config, envs = plans(StepsPart(1, 2), rewards=[level], train={"warmup_steps": 1})
    refuse_no_demonstrations(config, envs)
    (part,) = envs
    bare = RunEnv(part.env, part.rewards, None, part.train[1:], ())
    with pytest.raises(UsageError, match="--warmup-steps needs worked answers, and env 'endless' has none"):
        refuse_no_demonstrations(config, [bare])
    refuse_no_demonstrations(parse_config({"env": "endless"}), [bare])
