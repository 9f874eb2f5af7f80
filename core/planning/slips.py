"""Says which numbers of a configuration are so far from what is usual that they are likely to be slips.

They may be meant, so the run goes on; what cannot be meant is refused where the setting is declared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from grpo.core.config.schema import RunConfig
from grpo.core.planning.facts import Facts
from grpo.core.planning.optimizer import OptimizerPart, usual_rate

MOST_TIMES_USUAL = 100  # of a learning rate
HOTTEST = 3.0  # temperature at which a policy still says what it has learned


def slips(config: RunConfig, facts: Facts, optimizer: OptimizerPart, model_config: Any) -> Iterator[str]:
    """Yields a sentence for each number that is likely to be a slip."""
    usual = usual_rate(config, facts)
    if round(optimizer.lr / usual) > MOST_TIMES_USUAL:
        yield (
            f"a learning rate of {optimizer.lr:g} is {optimizer.lr / usual:,.0f} times the usual {usual:g}: "
            "the policy may collapse in its first steps. Try a lower one first."
        )
    if config.rollout.temperature > HOTTEST:
        yield (
            f"a temperature of {config.rollout.temperature:g} samples almost at random: few completions will be right. "
            "Usual is 1."
        )
    hidden = getattr(model_config.get_text_config(), "hidden_size", None)
    if config.lora.enabled and isinstance(hidden, int) and config.lora.rank > hidden:
        yield (
            f"a LoRA rank of {config.lora.rank} is over the model's hidden size of {hidden}: the adapter has more "
            "weights than full fine-tuning trains. Usual are 8 to 64."
        )
