"""What a run minimises is tried before a model loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo.core.config.schema import parse_config
from grpo.core.planning.objective import bind_objective
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host

MINE = """
from grpo import GroupScores, LossTokens, TokenCosts, advantage, loss

@advantage(version=1)
def of_groups(scores: GroupScores):
    return scores.totals.mean(dim=1)

@advantage(version=1)
def raises(scores: GroupScores):
    return scores.nothing

@loss(version=1)
def one_number(tokens: LossTokens) -> TokenCosts:
    return TokenCosts(tokens.logps.sum())

@loss(version=1)
def plain(tokens: LossTokens) -> TokenCosts:
    return TokenCosts(-tokens.advantages * tokens.ratio())
"""


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (
            {"advantage": "of_groups"},
            r"advantage 'of_groups' \(.*mine.py\) fails .* shape \(2,\) for totals of shape \(2, 8\)",
        ),
        ({"advantage": "raises"}, r"advantage 'raises' .* AttributeError: .*nothing.* grpo plugins check advantage:"),
        ({"type": "one_number"}, r"loss 'one_number' .* costs of shape \(\) for 2 completions"),
    ],
)
def test_one_that_fails_is_refused_by_name(tmp_path: Path, section: dict[str, Any], said: str) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    given = {key: f"{tmp_path}/mine.py:{name}" for key, name in section.items()}
    with pytest.raises(UsageError, match=said):
        bind_objective(parse_config({"env": "guess", "loss": given}), Host.discover())


def test_one_that_works_is_bound(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    loss, advantage = bind_objective(
        parse_config({"env": "guess", "loss": {"type": f"{tmp_path}/mine.py:plain"}}), Host.discover()
    )
    assert (loss.name, advantage.name) == ("plain", "group_mean")
