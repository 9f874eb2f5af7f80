"""Which servers fit a run, and the command that starts one that does."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, replace
from typing import Any

import pytest

from grpo.core.config.schema import parse_config
from grpo.core.rollout.server.capabilities import (
    ServerCapabilities,
    card_from_json,
    card_of_model,
    command_for,
    logprobs_of,
    misfits,
    refuse_unsplittable,
)
from grpo.plugins.errors import UsageError

URL = "http://127.0.0.1:8271"


@pytest.fixture(scope="module")
def card() -> ServerCapabilities:
    """A server of the embedded model with adapters."""
    from grpo.core.policy.load import policy_source

    return card_of_model(
        policy_source(None).path, dtype="float32", context=512, raw_logprobs=False, rank=16, targets="all-linear"
    )


def test_a_card_survives_the_way_and_fits_itself(card: ServerCapabilities) -> None:
    again = card_from_json({**json.loads(json.dumps(asdict(card))), "incarnation": "x", "new": 1})
    assert again == card
    assert misfits(card, again) == []
    assert "lm_head" not in card.lora_modules
    assert "q_proj" in card.lora_modules


@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        ({"traits": {"hidden_size": 64}}, "its model has hidden_size 128, the run's 64"),
        ({"tokenizer": 1}, "its tokenizer has another vocabulary"),
        ({"dtype": "bfloat16"}, "it computes in float32, the run in bfloat16"),
        ({"context": 513}, "its context is 512 tokens, the run needs 513"),
        ({"raw_logprobs": True}, "it reports log-probabilities after temperature and filters"),
        ({"lora_rank": 17}, "it serves adapters up to rank 16, the run's has 17"),
        ({"lora_modules": ("router",)}, "it cannot adapt router"),
        ({"protocol": 2}, "it speaks version 1 of the protocol"),
    ],
)
def test_what_does_not_fit_is_told(card: ServerCapabilities, wanted: dict[str, Any], what: str) -> None:
    (told,) = misfits(card, replace(card, **wanted))
    assert told.startswith(what)


def test_a_server_without_adapters_is_told_of_the_way_without(card: ServerCapabilities) -> None:
    (told,) = misfits(replace(card, lora_rank=None, lora_modules=()), card)
    assert told.endswith("(or hand it over with --lora-sync folded)")


def test_a_better_server_fits(card: ServerCapabilities) -> None:
    assert misfits(card, replace(card, context=100, lora_rank=8, lora_modules=("q_proj",), raw_logprobs=None)) == []
    assert misfits(card, replace(card, lora_rank=None, lora_modules=())) == []


@pytest.mark.parametrize("url", [URL, "http://10.0.0.3:9000", "https://node7:443/grpo"])
def test_the_command_starts_a_server_that_fits(card: ServerCapabilities, url: str) -> None:
    from grpo.core.cli.serve import serve_rollouts

    wanted = replace(card, raw_logprobs=True, lora_modules=("k_proj", "q_proj"))
    words = shlex.split(command_for(wanted, url, embedded=False, all_linear=False))
    assert words[:2] == ["grpo", "serve-rollouts"]
    given = serve_rollouts.make_context("serve-rollouts", words[2:]).params
    assert given["model"] == card.model
    assert (given["dtype"], given["context"], given["raw_logprobs"]) == ("float32", 512, True)
    assert (given["lora_rank"], given["lora_targets"]) == (16, "k_proj,q_proj")
    assert given["host"] == ("127.0.0.1" if "127" in url else url.split("/")[2].split(":")[0])
    short = command_for(card, url, embedded=True, all_linear=True)
    assert "--model" not in short
    assert "--lora-targets" not in short


@pytest.mark.parametrize(
    ("rollout", "raw"),
    [({}, None), ({"temperature": 0.7}, False), ({"top_p": 0.9}, True), ({"top_k": 5}, True)],
)
def test_log_probabilities_are_wanted_as_training_computes_them(rollout: dict[str, Any], raw: bool | None) -> None:
    assert logprobs_of(parse_config({"env": "gsm8k", "rollout": rollout})) is raw


def test_a_model_that_cannot_be_served_so_is_refused(card: ServerCapabilities) -> None:
    with pytest.raises(UsageError, match=r"--context 9999 is over the model's own limit of \d+"):
        card_of_model(card.model, dtype="float32", context=9999, raw_logprobs=False, rank=None, targets="all-linear")
    with pytest.raises(UsageError, match="no module 'q_porj'"):
        card_of_model(card.model, dtype="float32", context=64, raw_logprobs=False, rank=8, targets=["q_porj"])


def test_a_model_that_cannot_be_split_so_is_refused(card: ServerCapabilities, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refuse_unsplittable(card.model, 1)
    refuse_unsplittable(card.model, 2)
    with pytest.raises(
        UsageError,
        match=r"2 heads of attention, or of keys and values, which cannot be shared so\. Choose a divisor of 2",
    ):
        refuse_unsplittable(card.model, 4)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UsageError, match="this machine has 1 GPUs"):
        refuse_unsplittable(card.model, 2)
