"""The keywords of `grpo.train`: every flag and every section is one, and a slip is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo.core.cli.run import run
from grpo.core.config.schema import RunConfig, parse_config
from grpo.core.run.python.keywords import by_keywords, in_python, leaves, settings_tree, short_names
from grpo.plugins.errors import UsageError

NO_SETTINGS = {"env", "reward", "env_reward", "verifier", "config_file", "pairs", "print_schema", "resume_from"}
NO_SETTINGS |= {"dry_run", "quiet", "help", "place", "ray_address", "workers", "servers", "nodes"}


def test_every_flag_that_is_a_setting_is_a_keyword() -> None:
    assert {option.name for option in run.params} - NO_SETTINGS == set(short_names())


def test_every_keyword_sets_a_setting() -> None:
    known = leaves(RunConfig(env="gsm8k").model_dump())
    assert set(short_names().values()) <= set(known)


@pytest.mark.parametrize(
    ("settings", "tree"),
    [
        ({"steps": 3, "lr": None, "train": {"group_size": 4}}, {"train": {"steps": 3, "group_size": 4}}),
        ({"lora": True, "lora_rank": 4}, {"lora": {"enabled": True, "rank": 4}}),
        ({"lora": {"enabled": True, "rank": 4}}, {"lora": {"enabled": True, "rank": 4}}),
        ({"loss": "grpo", "beta": 0.1}, {"loss": {"type": "grpo", "beta": 0.1}}),
        ({"loss": {"type": "grpo"}, "beta": 0.1}, {"loss": {"type": "grpo", "beta": 0.1}}),
        ({"model": Path("m"), "out": Path("o"), "seed": 1}, {"model": "m", "out": "o", "seed": 1}),
        ({"canaries": Path("c"), "lora_targets": ("a",)}, {"canaries": {"file": "c"}, "lora": {"targets": ["a"]}}),
        (
            {"evaluation": {"size": 0}, "report_to": ["wandb"]},
            {"evaluation": {"size": 0}, "output": {"report_to": ["wandb"]}},
        ),
    ],
)
def test_keywords_become_the_tree_of_a_configuration(settings: dict[str, Any], tree: dict[str, Any]) -> None:
    assert settings_tree(settings) == tree
    if "lora_targets" not in settings:
        parse_config({"env": "gsm8k", **tree})


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"step": 3}, "no argument 'step'. Did you mean 'steps'?"),
        ({"learning_rate": 1e-5}, "no argument 'learning_rate'. Did you mean 'lr'?"),
        ({"num_generations": 4}, "no argument 'num_generations'. Did you mean 'group_size'?"),
        ({"trian": {"lr": 1}}, "Did you mean 'train'?"),
        ({"verifiers": "gsm8k"}, "Did you mean 'verifier'?"),
        ({"steps": 3, "train": {"steps": 3}}, "'train.steps' is given twice"),
        ({"steps": 3, "train": 3}, "train is a section of settings, and 3 is not a dictionary. Write train={...}."),
    ],
)
def test_a_slip_is_told(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError) as refused:
        settings_tree(settings)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("told", "in_words_of_python"),
    [
        ("start with --set failures.no_signal_steps=0.", 'start with failures={"no_signal_steps": 0}.'),
        ("replace such groups with --dynamic 2, or warm up", "replace such groups with dynamic=2, or warm up"),
        ("as in --env gsm8k:as=gsm8k_2.", "as in env='gsm8k:as=gsm8k_2'."),
        ("leave --dataset my.jsonl out", "leave dataset='my.jsonl' out"),
        ("--warmup-steps needs worked answers", "warmup_steps=... needs worked answers"),
        ("Name one with --reward, or --lora, or --full", "Name one with rewards=..., or lora=True, or lora=False"),
        ("and lora.dropout=0, which", 'and lora={"dropout": 0}, which'),
        ("with: grpo run --resume runs/x --steps 4", "with: grpo.train(resume='runs/x', steps=4)"),
        ("with: grpo run --resume 'my runs/x' --steps 4", "with: grpo.train(resume='my runs/x', steps=4)"),
        ("See `grpo show runs/x --step 3`, or grpo plugins", "See `grpo show runs/x --step 3`, or grpo plugins"),
        ("a file --of theirs, and note.book=3", "a file --of theirs, and note.book=3"),
    ],
)
def test_a_message_names_keywords_in_the_place_of_flags(told: str, in_words_of_python: str) -> None:
    assert in_python(told) == in_words_of_python


def test_a_setting_that_was_given_by_a_short_keyword_goes_by_it() -> None:
    told = "train.lr: input should be greater than 0; 'train.lr' and train.lrs stay"
    assert by_keywords(told, {"lr": 0}) == "lr: input should be greater than 0; 'train.lr' and train.lrs stay"
    assert by_keywords(told, {"train": {"lr": 0}}) == told
