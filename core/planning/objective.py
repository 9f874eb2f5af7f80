"""What a run minimises: the names in its configuration in, the bound loss and advantage out."""

from __future__ import annotations

from grpo.core.config.schema import RunConfig
from grpo.core.train.objective import takes_turns
from grpo.core.train.trl_arguments import refuse_unfit_head
from grpo.plugins._binding import BoundAdvantage, BoundLoss
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host


def bind_objective(config: RunConfig, host: Host) -> tuple[BoundLoss, BoundAdvantage]:
    """Looks up the loss and the advantage of a run.

    Raises:
        UsageError: there is none of that name, its options are wrong, TRL's head is to compute what TRL does not
            have, or the loss mixes turns that the advantage tells apart.
    """
    loss, advantage = host.loss(config.loss.type), host.advantage(config.loss.advantage)
    refuse_unfit_head(config.train.head, loss)
    if advantage.spec.turns:
        if config.train.head == "trl":
            raise UsageError(
                f"train.head=trl takes one advantage for each completion, but '{advantage.name}' has one per turn: "
                "leave train.head out."
            )
        if not takes_turns(loss):
            raise UsageError(
                f"loss '{loss.name}' has one ratio for all tokens of a completion, through which every turn would "
                f"learn from what advantage '{advantage.name}' says of the others: choose a loss with a ratio for each "
                "token, such as --loss dapo."
            )
    return loss, advantage
