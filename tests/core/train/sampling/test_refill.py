"""A batch is filled up within its step: failures are sampled again, groups without signal give way to other prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grpo.core.env.episodes import Episode, in_groups
from grpo.core.env.replacement_rows import ReplacementRows
from grpo.core.plan import Plan
from grpo.core.rollout.synced import SyncedRollouts
from grpo.core.run.scoring import Scoring
from grpo.core.train.collect import Collected, Collector
from grpo.core.train.sampling.refill import Refiller
from grpo.core.train.sampling.sampler import PolicySampler
from grpo.plugins.errors import UsageError

CPU = torch.device("cpu")
REWARDS = """
from pathlib import Path

from grpo import reward

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def brittle(completion: str, *, share: float = 0.3) -> float:
    if sum(map(ord, completion)) % 100 < 100 * share:
        raise RuntimeError("cannot read this one")
    return len(completion) % 7 / 7

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def hopeless(completion: str) -> float:
    raise RuntimeError("cannot read any")

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def even(completion: str, answer: str) -> float:
    return 0.5 if float(answer.replace(",", "")) % 2 else len(completion) % 7 / 7

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def odd(completion: str, answer: str) -> float:
    return 1 - even(completion, answer) / 2

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def flat(completion: str) -> float:
    return 0.5

@reward(version=1, range=(0.0, 1.0), isolation="inline", scope="group")
def ranked(completions: list[str]) -> list[float]:
    with Path(__file__).with_name("sizes.txt").open("a") as file:
        print(len(completions), file=file)
    if any(sum(map(ord, one)) % 100 < 5 for one in completions):
        raise RuntimeError("cannot read one of these")
    return [sorted(completions).index(one) / 10 for one in completions]
"""
Collect = Callable[..., Collected]


@pytest.fixture
def collect(tiny_model: Path, tmp_path: Path) -> Collect:
    """Makes a batch of 4 groups of 4 with a reward, as a run of one process does."""
    from grpo.core.config.schema import parse_config
    from grpo.core.planning.decide import make_plan
    from grpo.core.policy.load import load_model, load_tokenizer
    from grpo.core.rollout.hf.sampler import HfRollouts
    from grpo.core.rollout.players import players_of
    from grpo.core.rollout.types import sampling_params
    from grpo.plugins.host import Host

    (tmp_path / "mine.py").write_text(REWARDS)
    tokenizer, model = load_tokenizer(str(tiny_model)), load_model(str(tiny_model), "float32")

    def made(*rewards: str, step: int = 1, limit: int = 40, advantage: str = "group_mean", **rollout: Any) -> Collected:
        tree = {
            "env": "gsm8k",
            "dataset": "embedded",
            "model": str(tiny_model),
            "rewards": [f"{tmp_path}/mine.py:{reward}" for reward in rewards],
            "loss": {"advantage": advantage},
            "out": str(tmp_path / "run"),
            "train": {"limit": limit, "prompts_per_step": 4, "group_size": 4, "steps": 2},
            "rollout": {"max_completion_length": 12, **rollout},
            "failures": {"stop_share": 0.9, "retries": 0},
            "evaluation": {"size": 0},
        }
        plan = make_plan(parse_config(tree), Host.discover())
        with closing(Scoring(plan, lambda text: None)) as scoring:
            fills = plan.config.rollout.refill or plan.config.rollout.dynamic
            replacements = ReplacementRows(plan.envs, plan.config.seed)
            filler = Refiller(plan.config, plan.rewards, plan.advantage, scoring, replacements)
            sampler = PolicySampler(
                SyncedRollouts(HfRollouts(), lambda: nullcontext(model)),
                players_of(plan.envs, plan.config.rollout, tokenizer),
                tokenizer,
                sampling_params(plan.config.rollout, (tokenizer.eos_token_id,), tokenizer.pad_token_id),
                scoring.begin,
                0,
                filler.filled if fills else None,
            )
            ends, pad = (tokenizer.eos_token_id,), tokenizer.pad_token_id
            collector = Collector(plan, sampler, scoring, end_ids=ends, pad_id=pad, device=CPU)
            return collector.collect(episodes_of(plan), step, again=False)

    return made


def episodes_of(plan: Plan) -> Sequence[Episode]:
    return in_groups([episode for episode in plan.train[:4] for _ in range(4)], 4)


def kinds(found: Collected, name: str) -> list[str]:
    return [outcome.kind for outcome in found.batch.outcomes[name]]


def test_a_completion_that_a_reward_failed_on_is_sampled_again_and_its_group_stays_whole(collect: Collect) -> None:
    before, after = collect("brittle"), collect("brittle", refill=6)
    failed = [number for number, kind in enumerate(kinds(before, "brittle")) if kind == "failure"]
    assert failed
    assert kinds(after, "brittle") == ["score"] * 16
    for number, (old, new) in enumerate(zip(before.batch.completions, after.batch.completions, strict=True)):
        assert (old.token_ids == new.token_ids) == (number not in failed)
        assert old.row == new.row
    first = after.batch.wasted[: len(failed)]
    assert [one.rollout.completion.text for one in first] == [before.batch.completions[n].text for n in failed]
    assert all(one.outcomes["brittle"].kind == "failure" for one in after.batch.wasted)
    assert after.batch.advantages.trained.all()
    assert after.metrics["sampling/per_completion"] == 1 + len(after.batch.wasted) / 16
    kept = [len(one.token_ids) for one in after.batch.completions]
    gone = [len(one.rollout.completion.token_ids) for one in after.batch.wasted]
    assert after.metrics["sampling/wasted"] == sum(gone) / sum(kept + gone)


def test_what_can_never_be_scored_is_sampled_again_only_so_often(collect: Collect) -> None:
    found = collect("hopeless", refill=2)
    assert kinds(found, "hopeless") == ["failure"] * 16
    assert len(found.batch.wasted) == 32


def test_failures_that_were_sampled_again_still_stop_the_run(collect: Collect, tmp_path: Path) -> None:
    from grpo.core.train.batch.batch import stop_on_failures
    from grpo.plugins.errors import RunError
    from grpo.plugins.host import Host

    found = collect("brittle", refill=6)
    assert "failure" not in kinds(found, "brittle")
    with pytest.raises(RunError, match=f"failed on {len(found.batch.wasted)} of {16 + len(found.batch.wasted)}"):
        stop_on_failures(found.batch, Host.discover().rewards([f"{tmp_path}/mine.py:brittle"]), 0.05)


def test_a_group_without_signal_gives_way_to_another_prompt(collect: Collect) -> None:
    before, after = collect("even"), collect("even", dynamic=20.0)
    flat = [group for group, std in enumerate(before.batch.advantages.group_std.tolist()) if std == 0]
    assert flat
    assert len(flat) < 4
    assert after.batch.advantages.no_signal == 0
    prompts = [one.row["question"] for one in after.batch.completions]
    assert all(len(set(prompts[4 * group : 4 * group + 4])) == 1 for group in range(4))
    assert len(set(prompts)) == 4
    for group in range(4):
        same = before.batch.completions[4 * group].row == after.batch.completions[4 * group].row
        assert same == (group not in flat)
    assert {one.group for one in after.batch.wasted} == {*flat}
    assert [one.group for one in after.batch.completions] == [number // 4 for number in range(16)]


def test_a_group_that_has_advantages_stays_though_its_totals_are_alike(collect: Collect) -> None:
    by_total = collect("even", "odd:weight=2", dynamic=3.0)
    assert {one.group for one in by_total.batch.wasted} == {0, 1, 2, 3}
    apart = collect("even", dynamic=20.0)
    by_mix = collect("even", "odd:weight=2", advantage="gdpo", dynamic=20.0)
    assert by_mix.batch.advantages.no_signal == 1
    assert [one.row for one in by_mix.batch.completions] == [one.row for one in apart.batch.completions]


@pytest.mark.parametrize("advantage", ["reinforce_plus_plus", "reinforce_plus_plus:baseline=none"])
def test_groups_that_teach_though_their_scores_are_alike_are_not_to_be_replaced(
    collect: Collect, advantage: str
) -> None:
    with pytest.raises(UsageError, match=r"(?s)'reinforce_plus_plus' these have a signal too.*Leave --dynamic out"):
        collect("even", advantage=advantage, dynamic=1.0)
    assert not collect("even", advantage=advantage).batch.wasted
    assert collect("even", "flat", advantage="reinforce_plus_plus:baseline=group", dynamic=20.0).batch.wasted


def test_a_budget_of_tokens_ends_it(collect: Collect) -> None:
    found = collect("flat", dynamic=1.5)
    first = collect("flat")
    sampled = sum(len(one.token_ids) for one in found.batch.sampled)
    tokens = sum(len(one.token_ids) for one in first.batch.completions)
    assert 1.5 * tokens < sampled <= 2.6 * tokens
    assert found.batch.advantages.no_signal == 1
    assert len(found.batch.wasted) % 4 == 0


def test_tokens_that_taught_nothing_are_those_in_vain_and_those_of_groups_that_are_left_alike(
    collect: Collect,
) -> None:
    found = collect("even")
    flat = [std == 0 for std in found.batch.advantages.group_std.tolist()]
    lengths = [len(one.token_ids) for one in found.batch.completions]
    idle = sum(length for number, length in enumerate(lengths) if flat[number // 4])
    assert found.metrics["sampling/taught_nothing"] == pytest.approx(idle / sum(lengths))
    assert "sampling/wasted" not in found.metrics
    assert found.metrics["time/tokens_per_second"] > 0
    replaced = collect("even", dynamic=20.0).metrics
    assert replaced["sampling/taught_nothing"] == pytest.approx(replaced["sampling/wasted"])
    assert collect("flat", dynamic=1.5).metrics["sampling/taught_nothing"] == 1


def test_where_there_is_no_other_prompt_the_group_stays(collect: Collect) -> None:
    found = collect("flat", limit=5, dynamic=10.0)
    assert len({one.start.index for one in found.batch.wasted}) == 1
    assert len(found.batch.wasted) == 4


def test_where_one_environment_has_no_other_prompt_the_groups_of_another_are_replaced() -> None:
    envs = [
        SimpleNamespace(name=name, train=rows, env=SimpleNamespace(ordered=False))
        for name, rows in (("small", (0, 1)), ("large", range(9)))
    ]
    replacements = ReplacementRows(envs, seed=0)  # type: ignore[arg-type]
    gone = [("small", 0), ("large", 0), ("small", 1)]
    found = replacements.instead(gone, gone, step=3)
    assert found[0] == found[2] is None
    assert found[1] is not None
    assert found[1][0] == "large"


def test_the_same_step_is_filled_alike_again_and_another_one_otherwise(collect: Collect) -> None:
    settings = {"refill": 2, "dynamic": 3.0}
    once, again, other = collect("even", **settings), collect("even", **settings), collect("even", step=2, **settings)
    assert [one.token_ids for one in once.batch.sampled] == [one.token_ids for one in again.batch.sampled]
    assert [one.row for one in once.batch.completions] != [one.row for one in other.batch.completions]


def test_a_reward_of_groups_scores_the_whole_group_again(collect: Collect, tmp_path: Path) -> None:
    before, after = collect("ranked"), collect("ranked", refill=8)
    assert "failure" in kinds(before, "ranked")
    assert kinds(after, "ranked") == ["score"] * 16
    for group in range(4):
        members = slice(4 * group, 4 * group + 4)
        texts = [one.text for one in after.batch.completions[members]]
        scores = [one.score for one in after.batch.outcomes["ranked"][members]]
        assert scores == [sorted(texts).index(text) / 10 for text in texts]
    assert {*(tmp_path / "sizes.txt").read_text().split()} == {"4"}
