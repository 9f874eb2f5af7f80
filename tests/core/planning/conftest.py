"""Facts of a run, without a host that looks for plugins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from grpo.core.planning.facts import Facts
from grpo.core.policy.load import PolicySource
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.host import Host
from grpo.plugins.specs import EnvSpec

FactsOf = Callable[..., Facts]


@pytest.fixture
def facts_of() -> FactsOf:
    """Makes facts: environments by name to weight, one of them when none is named."""

    def facts(weights: dict[str, float] | None = None, *, embedded: bool = False, processes: int = 1) -> Facts:
        def nothing() -> Any:
            raise AssertionError("no environment is made here")

        envs = [
            BoundEnv(EnvSpec(name=name, version=1, factory=nothing), "some-dist", weight=weight)
            for name, weight in (weights or {"one": 1.0}).items()
        ]
        return Facts(PolicySource("somewhere", embedded), tuple(envs), Host([]), processes)

    return facts
