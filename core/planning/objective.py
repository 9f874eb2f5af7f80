"""What a run minimises: the names in its configuration in, the bound loss and advantage out."""

from __future__ import annotations

from grpo.core.config.schema import RunConfig
from grpo.core.train.trl_arguments import refuse_unfit_head
from grpo.plugins._binding import BoundAdvantage, BoundLoss
from grpo.plugins.host import Host


def bind_objective(config: RunConfig, host: Host) -> tuple[BoundLoss, BoundAdvantage]:
    """Looks up the loss and the advantage of a run.

    Raises:
        UsageError: there is none of that name, its options are wrong, or TRL's head is to compute what TRL does not
            have.
    """
    loss, advantage = host.loss(config.loss.type), host.advantage(config.loss.advantage)
    refuse_unfit_head(config.train.head, loss)
    return loss, advantage
