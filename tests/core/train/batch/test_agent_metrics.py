"""What a batch says about its agents."""

from __future__ import annotations

from typing import Any

import pytest

from grpo.core.train.batch.metrics import agent_metrics
from grpo.plugins.types import Completion


def played(*delivered: bool, finish: Any = "stop", **changes: Any) -> Completion:
    call = {"parent": None, "root": "first", "thread": "", "trains": True, "prompt_tokens": 3, "sampled_tokens": 2}
    call |= {"finish": "stop", "seconds": 0.5, "ignored": [], "new": [], "said": None}
    record = {
        "calls": len(delivered),
        "roots": {"first": 1},
        "tokens_trained": 2,
        "tokens_untrained": 0,
        "model_seconds": 1.0,
        "own_seconds": 0.5,
        "exit": 0,
        "timed_out": False,
        "refused": [],
        "stdout": "",
        "stderr": "",
        "tree": [{**call, "delivered": one} for one in delivered],
        **changes,
    }
    return Completion("x", finish_reason=finish, info={"agent": record})


def test_figures_of_episodes_are_means_and_shares() -> None:
    metrics = agent_metrics(
        [
            played(True, True, exit=1, roots={"first": 1, "compacted": 3}, tokens_trained=10),
            played(True, False, exit=-9, timed_out=True, refused=["used up", "used up"], tokens_untrained=6),
            played(exit=None, roots={}, finish="error", tokens_trained=0, model_seconds=0.0),
            played(True, True, True, True),
        ]
    )
    assert metrics == {
        "agent/calls": 2.0,
        "agent/tokens_trained": 3.5,
        "agent/tokens_untrained": 1.5,
        "agent/model_seconds": 0.75,
        "agent/own_seconds": 0.5,
        "agent/roots/first": 0.75,
        "agent/roots/compacted": 0.75,
        **{f"agent/roots/{name}": 0.0 for name in ("thread", "tools", "system", "rewritten", "template", "again")},
        "agent/undelivered": 0.25,
        "agent/refused": 0.25,
        "agent/exits": 0.25,
        "agent/timed_out": 0.25,
        "agent/failed": 0.25,
    }


@pytest.mark.parametrize("info", [{}, {"agent": "Ann"}, {"agent": {"calls": 3}}, {"agent": {"tree": [{"parent": 7}]}}])
def test_what_another_environment_reports_is_no_agent(info: dict[str, Any]) -> None:
    assert agent_metrics([Completion("x", info=info)]) == {}
