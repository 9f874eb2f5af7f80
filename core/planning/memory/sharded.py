"""Counts what one GPU holds of a policy that several share, by ZeRO or FSDP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grpo.core.planning.memory.estimate import Shape
from grpo.core.processes.sharding import Sharding

Shared = Literal["none", "optimizer", "everything"]
SHARDINGS: tuple[Shared, ...] = ("none", "optimizer", "everything")  # DDP; ZeRO-1 and 2; ZeRO-3 and FSDP 2


@dataclass(frozen=True, slots=True)
class Spread:
    """How GPUs that train together share a policy. `shared`: the parts that each GPU holds a share of."""

    gpus: int = 1
    shared: Shared = "none"

    @classmethod
    def of(cls, sharding: Sharding | None, processes: int) -> Spread:
        """Returns how so many processes share a policy under what their launcher asked for."""
        if sharding is None:
            return cls(processes)
        return cls(processes, "everything" if sharding.weights else "optimizer")


ALONE = Spread()


def held(shape: Shape, spread: Spread) -> int:
    """Returns the bytes of the policy and its optimizer that stay on a GPU."""
    whole = shape.weights + shape.reference
    optimizer = shape.optimizer / spread.gpus if spread.shared != "none" else shape.optimizer
    own = whole / spread.gpus if spread.shared == "everything" else whole
    return round(own + optimizer + shape.adapter) + shape.sent + shape.versions


def gathered(shape: Shape, spread: Spread) -> int:
    """Returns the bytes that a policy which samples itself lacks, and is sent for as long as it does."""
    return round(shape.weights * (1 - 1 / spread.gpus)) if spread.shared == "everything" else 0


def peak(
    shape: Shape,
    context: int,
    sequences: int,
    spread: Spread,
    checkpointing: str,
    device: str = "cuda",
    head: str = "grpo",
) -> int:
    """Returns the bytes of an update on a micro batch of so many sequences of `context` tokens."""
    gradients = shape.gradients / spread.gpus if spread.shared != "none" else shape.gradients
    layer = 2 * shape.weights / shape.layers if spread.shared == "everything" else 0  # this one and the next, whole
    work = shape.update(context, sequences, checkpointing, device, head) - shape.fixed - shape.gradients
    return round(held(shape, spread) + gradients + layer + work)
