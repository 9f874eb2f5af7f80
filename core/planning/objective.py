"""Binds the loss and the advantage estimator that a configuration names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from grpo.core.config.schema import RunConfig
from grpo.core.train.trl_arguments import refuse_unfit_head
from grpo.core.train.update.objective import takes_turns, try_loss
from grpo.plugins._spec.binding import BoundAdvantage, BoundLoss, BoundReward
from grpo.plugins.errors import GrpoError, UsageError
from grpo.plugins.host import Host

Objective = TypeVar("Objective", BoundLoss, BoundAdvantage)


def bind_objective(config: RunConfig, host: Host) -> tuple[BoundLoss, BoundAdvantage]:
    """Looks up the loss and the advantage of a run. Raises UsageError."""
    loss, advantage = host.loss(config.loss.type), host.advantage(config.loss.advantage)
    refuse_unfit_head(config.train.head, loss)
    _refuse_broken(loss, str(config.loss.type), try_loss)
    _refuse_broken(advantage, str(config.loss.advantage), partial(_try_advantage, config.train.group_size))
    if advantage.spec.turns:
        if config.train.head == "trl":
            raise UsageError(
                f"train.head=trl takes one advantage for each completion, but '{advantage.name}' has one per turn: "
                "leave train.head out."
            )
        if not takes_turns(loss):
            raise UsageError(
                f"loss '{loss.name}' has one ratio for all tokens of a completion, so every turn would also learn from "
                f"the advantages that '{advantage.name}' gives to the other turns. Choose a loss with a ratio for each "
                "token, such as --loss dapo."
            )
    return loss, advantage


def _refuse_broken(part: Objective, written: str, attempt: Callable[[Objective], object]) -> None:
    try:
        attempt(part)
    except Exception as error:  # whatever a plugin raises
        reason = str(error) if isinstance(error, GrpoError) else f"{type(error).__name__}: {error}"
        raise UsageError(
            f"{part.spec.kind} '{part.name}' ({part.distribution}) fails on made-up completions: {reason} Try it alone "
            f"with: grpo plugins check {part.spec.kind}:{written}"
        ) from error


def _try_advantage(group_size: int, advantage: BoundAdvantage) -> None:
    import torch

    from grpo.core.train.advantages.compute import group_advantages

    scores = torch.arange(2 * group_size, dtype=torch.float64)[:, None] % 3 / 2
    each = scores[:, None] if advantage.spec.turns else None
    failed = torch.zeros(len(scores), dtype=torch.bool)
    group_advantages(scores, failed, torch.ones(1, dtype=torch.float64), group_size, advantage, each)


def refuse_replacing_what_teaches(config: RunConfig, advantage: BoundAdvantage, rewards: Sequence[BoundReward]) -> None:
    """Refuses dynamic sampling with an advantage for which groups of equal scores teach too, tried on made-up ones."""
    if not config.rollout.dynamic:
        return
    import torch

    from grpo.core.train.advantages.compute import group_advantages

    alike = [[0.0] * 4, [1.0] * 4]
    scores = torch.tensor([*alike, [0.0, 1.0, 1.0, 0.0]], dtype=torch.float64).reshape(-1, 1).expand(-1, len(rewards))
    weights = torch.tensor([reward.weight for reward in rewards], dtype=torch.float64)
    each = scores[:, None] if advantage.spec.turns else None
    advantages = group_advantages(scores, torch.zeros(len(scores), dtype=torch.bool), weights, 4, advantage, each)
    if advantages.teaches[:8].any():
        raise UsageError(
            f"rollout.dynamic replaces groups whose scores are all equal, but with advantage '{advantage.name}' these "
            "have a signal too, because it compares completions across groups. Leave --dynamic out, or use one "
            "that compares within the group, such as group_mean or reinforce_plus_plus:baseline=group."
        )
