"""What the rows of a warm-up share is computed once, and nothing of the loss or its gradient changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest


def batch(starts: list[int], ends: list[int], prompt: int) -> dict[str, Any]:
    """Rows with the same first tokens, a prompt of their own and an answer to learn; padded on the right."""
    import torch

    generator = torch.Generator().manual_seed(0)
    rows = [[*starts, *torch.randint(10, 400, (prompt + length,), generator=generator).tolist()] for length in ends]
    longest = max(map(len, rows))
    ids, mask = torch.zeros(2, len(rows), longest, dtype=torch.long)
    labels = torch.full_like(ids, -100)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = torch.tensor(row)
        mask[place, : len(row)] = 1
        labels[place, len(starts) + prompt : len(row)] = torch.tensor(row[len(starts) + prompt :])
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def learn(model: Any, inputs: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
    """The loss that transformers computes, and its gradients."""
    model.zero_grad()
    loss = model(**inputs).loss
    loss.backward()
    return loss.item(), {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.fixture(scope="module")
def policy(tiny_model: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_model, dtype="float32").double()


@pytest.mark.parametrize("prompt", [0, 1, 7])
def test_loss_and_gradients_are_those_of_whole_rows(policy: Any, prompt: int) -> None:
    import torch

    from grpo.core.train.sft.data import without_prefix

    whole = batch(list(range(50, 90)), [3, 9, 5], prompt)
    left = without_prefix(policy, whole)
    shared = 39  # of 40: the next token may already be one to learn
    assert left["input_ids"].shape[1] == whole["input_ids"].shape[1] - shared
    loss, gradients = learn(policy, left)
    expected, plain = learn(policy, whole)
    assert loss == pytest.approx(expected, abs=1e-5)
    for name, gradient in plain.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=0, atol=1e-6)


def test_rows_with_little_in_common_stay_whole(policy: Any) -> None:
    from grpo.core.train.sft.data import without_prefix

    for inputs in (batch([7] * 8, [3, 4], 5), batch([7] * 40, [3], 5)):
        assert without_prefix(policy, inputs).keys() == inputs.keys()


def test_what_is_to_be_learned_is_never_shared() -> None:
    """Equal rows are shared up to the token that predicts the first one to learn."""
    import torch

    from grpo.core.train.sft.data import common_length

    ids = torch.arange(30).repeat(4, 1)
    labels = ids.clone()
    labels[:, :20] = -100
    assert common_length(ids, labels) == 19
    labels[2, 5] = 5
    assert common_length(ids, labels) == 4


@pytest.mark.slow
def test_a_warm_up_learns_the_same_with_and_without_sharing(tiny_model: Path, tmp_path: Path) -> None:
    from grpo.core.config.schema import parse_config
    from grpo.core.planning.decide import make_plan
    from grpo.core.policy.load import load_policy, load_tokenizer
    from grpo.core.train.callbacks import LossCallback
    from grpo.core.train.sft.warmup import warm_up
    from grpo.core.train.stop import StopRequest
    from grpo.plugins.host import Host

    losses: dict[bool, list[float]] = {True: [], False: []}
    for shares, found in losses.items():
        train = {"steps": 1, "warmup_steps": 3, "warmup_lr": 1e-2, "prompts_per_step": 4, "group_size": 2, "limit": 40}
        settings = {"share_prompts": shares, "micro_batch_size": 4}
        tree: dict[str, Any] = {"env": "gsm8k:dataset=embedded", "model": str(tiny_model), "train": train | settings}
        tree["rollout"] = {"max_completion_length": 300}
        plan = make_plan(parse_config(tree), Host.discover())
        policy = load_policy(str(tiny_model), "float32", plan.config.lora)
        told = LossCallback(lambda step, loss, found=found: found.append(loss), StopRequest())
        warm_up(
            policy,
            load_tokenizer(str(tiny_model)),
            plan,
            tmp_path / str(shares),
            tmp_path / f"{shares}-policy",
            [told],
            pytest.fail,
        )
    assert len(losses[True]) == 3
    assert losses[True] == pytest.approx(losses[False], abs=1e-4)
    assert losses[True][2] < losses[True][0]
