"""The budgets of rollouts of several turns: what is chosen, and what could not work or would do nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo.core.config.sections import RolloutSection
from grpo.core.planning.turns import TurnsPart, decide_turns, narrowed, short_of_turns
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import UsageError
from grpo.plugins.specs import EnvSpec


def nothing() -> Any:
    raise AssertionError("no environment is made here")


LONG = BoundEnv(EnvSpec(name="long", version=1, factory=nothing, max_turns=6), "some-dist")
SHORT = BoundEnv(EnvSpec(name="short", version=1, factory=nothing, max_turns=2), "some-dist")
ONCE = BoundEnv(EnvSpec(name="once", version=1, factory=nothing), "some-dist")


def decided(*envs: BoundEnv, room: int | None = 9000, **wished: Any) -> TurnsPart:
    return decide_turns(RolloutSection(**wished), envs, 100, room)


def test_the_environment_with_the_most_turns_decides() -> None:
    assert decided(SHORT, LONG, ONCE) == TurnsPart(6, 6 * (100 + 256))
    assert decided(ONCE) == TurnsPart(None, None)


def test_a_rollout_ends_with_the_models_context_or_at_4096_tokens() -> None:
    assert decided(LONG, room=500) == TurnsPart(6, 500)
    assert decided(LONG, room=None) == TurnsPart(6, 6 * 356)
    assert decide_turns(RolloutSection(), [LONG], 512, None) == TurnsPart(6, 4096)
    assert decide_turns(RolloutSection(), [LONG], 9000, None) == TurnsPart(6, 9000)
    assert decided(LONG, max_turns=3, max_rollout_length=400) == TurnsPart(3, 400)


@pytest.mark.parametrize(
    ("env", "wished", "what"),
    [
        (ONCE, {"max_turns": 1}, r"rollout\.max_turns: env 'once' has only one turn"),
        (ONCE, {"max_rollout_length": 500}, r"rollout\.max_rollout_length: env 'once' has only one turn"),
        (LONG, {"max_turns": 7}, "takes at most 6 turns"),
        (LONG, {"max_rollout_length": 99}, r"99 is less than one turn \(rollout\.max_completion_length 100\)"),
        (LONG, {"max_rollout_length": 9001}, "has room for 9000 tokens"),
    ],
)
def test_a_budget_that_could_not_work_is_refused(env: BoundEnv, wished: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        decided(env, **wished)


def test_what_is_measured_alone_keeps_to_its_own_turns() -> None:
    of_run = RolloutSection(max_turns=4, max_rollout_length=700)
    assert narrowed(of_run, LONG).max_turns == 4
    assert narrowed(of_run, SHORT).max_turns == 2
    alone = narrowed(of_run, replace(ONCE, alias="x"))
    assert (alone.max_turns, alone.max_rollout_length) == (None, None)


@pytest.mark.parametrize(
    ("budgets", "context", "why"),
    [
        (
            {"max_turns": 500},
            2048,
            "context of 2,048 has room for 2,000. Rollouts with turns of full length end after 20.",
        ),
        ({"max_turns": 20}, 2048, None),
        ({"max_turns": 500}, None, "a rollout has 4,096 unless you say how many"),
        ({"max_turns": 500}, 9000, "a rollout has 4,096 unless you say how many"),
        ({"max_turns": 40}, None, None),
        ({"max_turns": 500, "max_rollout_length": 960}, 2048, None),
    ],
)
def test_turns_that_have_no_room_are_told(budgets: dict[str, Any], context: int | None, why: str | None) -> None:
    rollout, turn = RolloutSection(**budgets), 96
    part = decide_turns(
        rollout, [replace(SHORT, spec=replace(SHORT.spec, max_turns=500))], turn, context and context - 48
    )
    told = short_of_turns(rollout, part, turn, context)
    assert bool(told) == (why is not None)
    if why:
        assert "500 turns of up to 96 tokens each may have 48,000 tokens" in told[0]
        assert why in told[0]


def test_the_budget_of_an_agents_run_fits_longer_tasks_too() -> None:
    """An evaluation has the budget of its run, and its tasks may be longer."""
    wished = RolloutSection(max_turns=20, max_rollout_length=822)
    assert decide_turns(wished, [ONCE], 8, 815, agent=True) == TurnsPart(20, 815)
    with pytest.raises(UsageError, match="room for 815"):
        decide_turns(wished, [replace(LONG, spec=replace(LONG.spec, max_turns=20))], 8, 815)


def test_an_agent_has_a_budget_that_no_environment_names() -> None:
    assert decide_turns(RolloutSection(), [LONG], 512, None, agent=True) == TurnsPart(20, 4096)
    assert decide_turns(RolloutSection(max_turns=1), [LONG], 64, None, agent=True) == TurnsPart(1, 320)
    assert decide_turns(RolloutSection(), [LONG], 9000, None, agent=True) == TurnsPart(20, 9000)
