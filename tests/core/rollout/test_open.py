"""What samples for a plan: the policy itself, or what a server's plan asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo.core.config.schema import parse_config
from grpo.core.plan import Plan
from grpo.core.planning import decide
from grpo.core.rollout.hf.sampler import HfRollouts
from grpo.core.rollout.limits import engine_context, tolerance_of
from grpo.core.rollout.open import dealt, open_rollouts
from grpo.core.rollout.server.capabilities import card_of_plan, servers_of
from grpo.plugins.host import Host


@pytest.fixture
def plan_of(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(decide, "refuse_unfit_server", lambda plan: None)  # none runs here

    def plan(**rollout: Any) -> Plan:
        tree: dict[str, Any] = {"env": "gsm8k:size=8", "dataset": "embedded", "model": str(tiny_model)}
        tree |= {"evaluation": {"size": 2}, "rollout": {"max_completion_length": 300, **rollout}}
        return decide.make_plan(parse_config(tree | {"lora": {"enabled": True}}), Host.discover())

    return plan


@pytest.mark.slow
def test_the_policy_itself_samples_unless_told_otherwise(plan_of: Any) -> None:
    rollouts = open_rollouts(plan_of(batch_size=5), None)
    assert isinstance(rollouts, HfRollouts)
    assert rollouts.exact


def test_a_server_has_to_hold_the_longest_rollout_and_the_runs_adapter(plan_of: Any) -> None:
    urls = "http://a:1,http://b:2"
    plan = plan_of(backend="vllm-server", server_url=urls)
    assert engine_context(plan) == plan.longest_prompt + 300 + 16
    assert [(url, wanted) for url, wanted, _ in servers_of(plan)] == [
        (url, card_of_plan(plan)) for url in urls.split(",")
    ]
    wanted = card_of_plan(plan)
    assert (wanted.dtype, wanted.lora_rank, wanted.context) == (plan.config.train.dtype, 16, engine_context(plan))
    assert wanted.traits["hidden_size"] == plan.model_config.hidden_size
    assert all("--host" in command for _, _, command in servers_of(plan))


@pytest.mark.slow
def test_the_tolerance_is_that_of_the_data_type_unless_told_otherwise(plan_of: Any) -> None:
    assert tolerance_of(plan_of().config) == 2e-4
    assert tolerance_of(plan_of(tolerance=0.5).config) == 0.5


@pytest.mark.parametrize(("servers", "processes"), [(1, 1), (1, 4), (2, 3), (2, 2), (3, 2), (8, 3)])
def test_each_server_is_handed_weights_by_one_process_and_each_process_samples_somewhere(
    servers: int, processes: int
) -> None:
    named: list[Any] = [(f"http://s{number}", None, "") for number in range(servers)]
    shares = [dealt(named, number, processes) for number in range(processes)]
    assert sorted(one for own, _ in shares for one in own) == named
    assert all(bool(own) == (guest is None) for own, guest in shares)
    crowds = [sum(server in own or server == guest for own, guest in shares) for server in named]
    assert max(crowds) - min(crowds) <= 1, "no server has two processes more than another"
