"""Holds what a run goes by: a configuration with the parts that planning chose.

In `Settings` no value that a run needs is None. They are written to config.json under the names of the configuration,
so a run that resumes reads back what was chosen.
"""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from pydantic import BaseModel

from grpo.core.config.defaults import Dtype
from grpo.core.config.run_sections import OutputSection
from grpo.core.config.schema import RunConfig
from grpo.core.config.sections import Correction, LossSection, RolloutSection, TrainSection

Checkpointing = Literal["none", "full", "offload"]
SectionName = Literal["train", "loss", "rollout", "output"]
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
    """How completions are sampled, with everything chosen.

    An environment of one turn has no budgets of several: `turns` and `length` hold for both kinds.
    """

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


class Part(Protocol):
    """What one topic of planning chose: a frozen dataclass whose fields are settings of one section."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    section: ClassVar[SectionName]  # which one


def settle(kind: type[SectionT], given: BaseModel, *parts: Part) -> SectionT:
    """Returns a section with the values that were chosen for it in the place of the user's."""
    chosen = {field.name: getattr(part, field.name) for part in parts for field in fields(part)}
    return kind(**dict(given) | chosen)


def settled(config: RunConfig, *parts: Part) -> Settings:
    """Returns a configuration with everything that the parts chose."""
    kinds: dict[SectionName, type[BaseModel]] = {
        "train": TrainSettings,
        "loss": LossSettings,
        "rollout": RolloutSettings,
        "output": OutputSettings,
    }
    sections: dict[str, BaseModel] = {
        name: settle(kind, getattr(config, name), *(part for part in parts if part.section == name))
        for name, kind in kinds.items()
    }
    return Settings(**dict(config) | sections)
