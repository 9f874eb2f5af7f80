"""What the warm-up iterates over."""

from __future__ import annotations

from grpo.core.config.schema import parse_config
from grpo.core.planning.decide import make_plan
from grpo.plugins.host import Host


def test_only_the_demonstrations_that_are_learned_from_are_played() -> None:
    from grpo.core.env.order import Source, mixed_order
    from grpo.core.policy.load import load_tokenizer
    from grpo.core.rollout.players import players_of
    from grpo.core.train.sft.data import taught_rows, worked_answers

    tree = {"env": ["guess", "gsm8k:size=30"], "train": {"limit": 30, "warmup_steps": 1}}
    plan = make_plan(parse_config(tree), Host.discover())
    tokenizer = load_tokenizer(plan.source.path)
    players = players_of(plan.envs, plan.config.rollout, tokenizer)
    tables = [worked_answers(part.train, tokenizer, 64, players[part.name])[0] for part in plan.envs]
    every = [row for table in tables for row in table]
    for wanted in (1, 7, 90):
        order = mixed_order([Source(len(part.train)) for part in plan.envs], wanted, plan.config.seed)
        assert list(taught_rows(plan, tokenizer, wanted)) == [every[number] for number in order]


def test_worked_answers_that_completions_are_too_short_for_are_told() -> None:
    from grpo.core.train.sft.data import unfinished_note

    masks = [[0, 0, 1, 1, 1, 0, 1, 1], [0, 1, 1, 0, 0], [0, 0]]
    assert unfinished_note(masks, 3) is None
    assert "1 of 3 worked answers" in str(unfinished_note(masks, 2))
    assert "--max-completion-length 3" in str(unfinished_note(masks, 2))
