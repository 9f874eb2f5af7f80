"""What is written into the filter of `grpo show --live` chooses the rollouts that it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_run import failed, made_run

from grpo.core.record.run_dir import RolloutRow
from grpo.core.watch.followed import FollowedRun
from grpo.core.watch.terminal.choices import matching, ordered, parsed, written
from grpo.plugins.errors import UsageError


@pytest.fixture
def followed(tmp_path: Path) -> FollowedRun:
    def change(row: RolloutRow, number: int) -> RolloutRow:
        return failed(row, "it broke") if (row.step, number) == (2, 5) else row

    run = FollowedRun(made_run(tmp_path / "pens", steps=3, change=change))
    run.renew(60)
    return run


def chosen(run: FollowedRun, text: str) -> list[str]:
    choices = parsed(text, run.scan)
    assert parsed(written(choices), run.scan) == choices
    places = ordered(run.index, run.scan, choices, matching(run.index, run.scan, choices, range(run.index.count)))
    columns = run.index.columns
    return [f"{columns['step'][place]}.{columns['number'][place]}" for place in places]


def test_everything_is_listed_as_recorded_where_nothing_is_asked_for(followed: FollowedRun) -> None:
    assert chosen(followed, "") == [f"{step}.{number}" for step in (1, 2, 3) for number in range(8)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("step=2 group=1", ["2.4", "2.5", "2.6", "2.7"]),
        ("step=2-3 group=1 max=0.3", ["2.7"]),
        ("failed", ["2.5"]),
        ("failed=any", ["2.5"]),
        ("failed=proximity", ["2.5"]),
        ("failed=environment", []),
        ("verdict=right step=1", ["1.0", "1.1", "1.4", "1.5"]),
        ("verdict=wrong step=1 sort=reward", ["1.3", "1.7", "1.2", "1.6"]),
        ("verdict=wrong step=1 sort=-tokens", ["1.3", "1.7", "1.2", "1.6"]),
        ("reward=proximity min=0.3 max=0.4 step=1", ["1.2", "1.6"]),
        ("reward=proximity abstained", []),
        ("env=gsm8k finish=stop step=2 group=0", ["2.0", "2.1", "2.2", "2.3"]),
    ],
)
def test_rollouts_are_chosen_as_on_the_page(followed: FollowedRun, text: str, found: list[str]) -> None:
    assert chosen(followed, text) == found


@pytest.mark.parametrize("sort", ["reward", "-reward"])
def test_a_rollout_without_a_reward_comes_last_in_either_order(followed: FollowedRun, sort: str) -> None:
    assert chosen(followed, f"step=2 sort={sort}")[-1] == "2.5"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sttep=3", "no filter 'sttep'. Did you mean 'step'?"),
        ("step=many", "'many' is not a number or range"),
        ("verdict=write", "no verdict 'write'. Did you mean 'right'?"),
        ("reward=closeness", "no reward 'closeness'"),
        ("min=much", "min=much is not a number"),
        ("max=nan", "max=nan is not a number"),
        ("env='gsm8k", "Quotes come in pairs"),
        ("abstained", "add reward=NAME"),
    ],
)
def test_what_no_rollout_can_have_is_refused_by_name(followed: FollowedRun, text: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        parsed(text, followed.scan)
    assert told in str(refused.value)
