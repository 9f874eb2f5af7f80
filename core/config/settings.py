"""Holds the settings of a run after planning, none of them None, as they are written to config.json."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from grpo.core.config.defaults import Dtype
from grpo.core.config.schema import RunConfig
from grpo.core.config.sections import Correction, LossSection, OutputSection, RolloutSection, TrainSection

Checkpointing = Literal["none", "full", "offload"]
SectionT = TypeVar("SectionT", bound=BaseModel)


class TrainSettings(TrainSection):
    """How long and how fast, with everything chosen."""

    steps: int
    micro_batch_size: int
    lr: float
    warmup_lr: float
    checkpointing: Checkpointing
    dtype: Dtype


class LossSettings(LossSection):
    """The objective, with everything chosen."""

    rollout_correction: Correction


class RolloutSettings(RolloutSection):
    """How completions are sampled, with everything chosen; `turns` and `length` also hold for single turns."""

    max_completion_length: int

    @property
    def turns(self) -> int:
        """How often the policy may speak in one rollout."""
        return self.max_turns or 1

    @property
    def length(self) -> int:
        """The most tokens of a rollout after its prompt, sampled and observed."""
        return self.max_rollout_length or self.max_completion_length


class OutputSettings(OutputSection):
    """What is written and when, with everything chosen."""

    save_every: int


class Settings(RunConfig):
    """Everything a run depends on, apart from the machine, with everything chosen."""

    train: TrainSettings
    loss: LossSettings
    rollout: RolloutSettings
    output: OutputSettings


def settle(kind: type[SectionT], given: BaseModel, **chosen: Any) -> SectionT:
    """Returns a section with the values that were chosen for it in the place of the user's."""
    return kind(**dict(given) | chosen)
