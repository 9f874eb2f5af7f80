"""How many steps a run makes, and how many episodes its environments make for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from grpo.core.config.schema import parse_config
from grpo.core.env.episodes import Episode
from grpo.core.planning.facts import Facts
from grpo.core.planning.rows import StepsPart, decide_steps


def episodes(count: int) -> tuple[Episode, ...]:
    return tuple(Episode(n, (), {}, None, {}) for n in range(count))


def decided(facts: Facts, rows: dict[str, int], **tree: Any) -> StepsPart:
    found = {name: episodes(count) for name, count in rows.items()}
    return decide_steps(parse_config({"env": "one", **tree}), facts, found)


@pytest.mark.parametrize(
    ("tree", "steps"),
    [
        ({}, 5),
        ({"train": {"epochs": 2}}, 10),
        ({"train": {"epochs": 0.5}}, 3),
        ({"train": {"epochs": 0.001}}, 1),
        ({"train": {"steps": 7, "epochs": 2}}, 7),
        ({"loss": {"num_iterations": 3}}, 15),
    ],
)
def test_steps_follow_from_the_rows(tree: dict[str, Any], steps: int, facts_of: Callable[..., Facts]) -> None:
    assert decided(facts_of(), {"one": 40}, **tree) == StepsPart(steps, None)


def test_the_embedded_model_has_a_length_of_its_own_unless_epochs_are_asked_for(
    facts_of: Callable[..., Facts],
) -> None:
    assert decided(facts_of(embedded=True), {"one": 4000}).steps == 60
    assert decided(facts_of(embedded=True), {"one": 40}, train={"epochs": 1}).steps == 5


def test_rows_of_some_environments_count_for_their_share_of_the_prompts(facts_of: Callable[..., Facts]) -> None:
    both = facts_of({"one": 3.0, "other": 1.0})
    assert decided(both, {"one": 60}, env=["one", "other"]) == StepsPart(10, None), "80 prompts, of which 60 are its"
    assert decided(both, {"one": 60, "other": 20}, env=["one", "other"]).steps == 10


def test_only_an_environment_that_makes_its_episodes_alone_records_how_many(facts_of: Callable[..., Facts]) -> None:
    assert decided(facts_of(), {}) == StepsPart(125, 1000), "a thousand episodes at least"
    assert decided(facts_of(), {}, train={"steps": 200}) == StepsPart(200, 1600)
    assert decided(facts_of(), {}, train={"limit": 8}) == StepsPart(1, 8)
    assert decided(facts_of({"one": 1.0, "other": 1.0}), {}, env=["one", "other"]).limit is None
