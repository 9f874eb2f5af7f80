"""The built-in losses beside TRL's own code, on made-up tokens: values and gradients, to rounding."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grpo.core.train.losses import grpo_losses
from grpo.core.train.trl_arguments import TRL_LOSSES, loss_arguments
from grpo.core.train.update.objective import Counts, Objective, Tokens, policy_loss
from grpo.plugins._spec.binding import BoundLoss

BUILT_IN = {spec.name: spec for spec in grpo_losses()}
LENGTHS, WIDTH, LONGEST, ACCUMULATION, BATCH_TOKENS = (7, 4, 1, 6, 0), 7, 9, 2, 31.0
DEFAULTS = {
    "delta": None,
    "sapo_temperature_pos": 1.0,
    "sapo_temperature_neg": 1.05,
    "vespo_k_pos": 2.0,
    "vespo_k_neg": 3.0,
    "vespo_lambda_pos": 3.0,
    "vespo_lambda_neg": 2.0,
    "steps_per_generation": ACCUMULATION,
}


def made_up(*, old: bool, importance: bool) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)

    def draw() -> torch.Tensor:
        return torch.rand(len(LENGTHS), WIDTH, generator=generator, dtype=torch.float64)

    mask = torch.tensor([[1] * length + [0] * (WIDTH - length) for length in LENGTHS])
    logps = (-2 * draw() - 0.1) * mask
    found = {
        "mask": mask,
        "logps": logps,
        "entropies": 2 * draw() * mask,
        "advantages": torch.tensor([1.5, -0.7, 0.9, -1.2, 2.0], dtype=torch.float64),
        "ref": logps + 0.3 * (draw() - 0.5) * mask,
        "apart": 0.8 * (draw() - 0.5) * mask,
        "weights": torch.where(mask > 0, 0.5 + draw(), 1.0),
    }
    return {
        name: value for name, value in found.items() if (name != "apart" or old) and (name != "weights" or importance)
    }


def trls(
    trainer: type[Any], arguments: dict[str, Any], given: dict[str, torch.Tensor], beta: float
) -> list[torch.Tensor]:
    """The loss of TRL's own method, and its gradients by log-probabilities and entropies."""
    leaves = [given["logps"].clone().requires_grad_(), given["entropies"].clone().requires_grad_()]
    epsilon, high = arguments.get("epsilon", 0.2), arguments.get("epsilon_high")
    coefficient = arguments.get("entropy_coef", 0.0)
    one = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (*leaves, None),
        accelerator=SimpleNamespace(
            gather=lambda it: it,
            reduce=lambda it, reduction: it,
            pad_across_processes=lambda it, **_: it,
            num_processes=1,
            sync_gradients=False,
        ),
        args=SimpleNamespace(**{**DEFAULTS, **arguments}, use_bias_correction_kl=True),
        model=SimpleNamespace(training=True),
        loss_type=arguments.get("loss_type", "gmpo"),
        importance_sampling_level=arguments.get("importance_sampling_level", "token"),
        epsilon_low=epsilon,
        epsilon_high=epsilon if high is None else high,
        beta=beta,
        top_entropy_quantile=arguments.get("top_entropy_quantile", 1.0),
        off_policy_mask_threshold=None,
        use_vllm="weights" in given,
        vllm_importance_sampling_correction=True,
        current_gradient_accumulation_steps=ACCUMULATION,
        max_completion_length=LONGEST,
        aux_loss_enabled=False,
        use_adaptive_entropy=False,
        entropy_coef=coefficient,
        _entropy_bonus_enabled=coefficient != 0.0,
        _metrics={"train": defaultdict(list)},
        get_gamma_weights=getattr(trainer, "get_gamma_weights", None),
    )
    one.get_high_entropy_mask = lambda *them: trainer.get_high_entropy_mask(one, *them)
    nothing = torch.zeros(len(LENGTHS), 0, dtype=torch.long)
    inputs = {
        "prompt_ids": nothing,
        "prompt_mask": nothing,
        "completion_ids": given["mask"],
        "completion_mask": given["mask"],
        "advantages": given["advantages"],
        "num_items_in_batch": torch.tensor(BATCH_TOKENS),
        "ref_per_token_logps": given["ref"],
    }
    if "apart" in given:
        inputs["old_per_token_logps"] = given["logps"] + given["apart"]
    if "weights" in given:
        inputs["importance_sampling_ratio"] = given["weights"]
    loss = trainer._compute_loss(one, None, inputs)
    return [loss.detach(), *torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)]


def ours(loss: BoundLoss, given: dict[str, torch.Tensor], beta: float) -> list[torch.Tensor]:
    leaves = [given["logps"].clone().requires_grad_(), given["entropies"].clone().requires_grad_()]
    tokens = Tokens(
        leaves[0],
        given["mask"],
        given["advantages"],
        given["logps"] + given["apart"] if "apart" in given else None,
        given["ref"] if beta else None,
        given.get("weights"),
        leaves[1] if loss.spec.entropies != "none" else None,
    )
    every = given["mask"].sum()
    # TRL's bonus is a mean over the micro batch; the average of ours is over the tokens of the batch.
    batch = every * ACCUMULATION if loss.name == "entropy_bonus" else torch.tensor(BATCH_TOKENS)
    counts = Counts(len(LENGTHS), every, batch, LONGEST, ACCUMULATION)
    found = policy_loss(Objective(loss, beta), tokens, counts).loss
    return [found.detach(), *torch.autograd.grad(found, leaves, allow_unused=True, materialize_grads=True)]


@pytest.mark.slow
@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("importance", [False, True])
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("name", [*TRL_LOSSES, "gmpo"])
def test_values_and_gradients_are_those_of_trl(name: str, old: bool, importance: bool, beta: float) -> None:
    from trl import GRPOTrainer
    from trl.experimental.gmpo.gmpo_trainer import GMPOTrainer

    if name == "gmpo" and importance:
        pytest.skip("TRL applies no correction to GMPO")
    loss = BoundLoss(BUILT_IN[name], "grpo-kit", {"epsilon_high": 1.1} if name == "cispo" else {})
    given = made_up(old=old, importance=importance)
    trainer, arguments = GRPOTrainer, loss_arguments(loss)
    if name == "gmpo":
        trainer, arguments = GMPOTrainer, {"epsilon": 0.4}
    expected = trls(trainer, arguments, given, beta)
    if name == "gmpo":  # a completion without tokens costs its advantage there, a number without a gradient
        expected[0] = expected[0] + given["advantages"][-1] / (len(LENGTHS) * ACCUMULATION)
    if name == "entropy_bonus":  # the policy's own term is over the tokens of the batch there
        plain = trls(trainer, {**arguments, "entropy_coef": 0.0}, given, beta)
        share = BATCH_TOKENS / (float(given["mask"].sum()) * ACCUMULATION)
        expected = [p * share + (e - p) for p, e in zip(plain, expected, strict=True)]
    for mine, theirs in zip(ours(loss, given, beta), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-9)


def test_what_trl_has_is_named_by_its_own_arguments() -> None:
    bound = BoundLoss(BUILT_IN["vespo"], "grpo-kit", {"k_pos": 1.0})
    assert loss_arguments(bound)["vespo_k_pos"] == 1.0
    assert loss_arguments(BoundLoss(BUILT_IN["gmpo"], "grpo-kit")) == {}
    assert loss_arguments(BoundLoss(BUILT_IN["dapo"], "their-dist")) == {}, "another one of that name"
    assert {*TRL_LOSSES} <= {*BUILT_IN}


def test_a_soft_gate_is_no_clip_and_pulls_less_the_further_it_is() -> None:
    bound = BoundLoss(BUILT_IN["sapo"], "grpo-kit")
    logps = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[0.0, -0.1, -0.5, -1.5]], dtype=torch.float64)
    one = torch.tensor(1.0)
    tokens = Tokens(logps, torch.ones(1, 4), torch.ones(1, dtype=torch.float64), old)
    loss = policy_loss(Objective(bound), tokens, Counts(1, one * 4, one * 4, 4, 1)).loss
    (found,) = torch.autograd.grad(loss, logps)
    pull = (-4 * found[0] / old[0].neg().exp()).tolist()  # by the ratio
    assert pull[0] == pytest.approx(1.0)
    assert sorted(pull, reverse=True) == pull
    assert pull[-1] > 0
