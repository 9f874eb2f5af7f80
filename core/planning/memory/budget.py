"""Chooses settings with which a run fits into the memory of a device."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from grpo.core.config.schema import RunConfig
from grpo.core.config.settings import Checkpointing
from grpo.core.planning.memory.estimate import Shape, modes
from grpo.core.planning.memory.sharded import ALONE, Spread, gathered, held, peak
from grpo.plugins.errors import UsageError

GIB = 2**30
RESERVED = {"cuda": 1.5 * GIB, "cpu": 0.75 * GIB}  # context and workspaces of CUDA, fragments; the libraries on a CPU
_UNITS = {"b": 1, "k": 2**10, "m": 2**20, "": 2**30, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(?:i?b)?|(b))?", re.IGNORECASE)
_MOST = 2 * 2**40  # bytes; no GPU has as much, so what is beyond it is a slip of the unit
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@dataclass(frozen=True, slots=True)
class Device:
    """Memory sizes in bytes."""

    kind: str  # "cuda" or "cpu"
    total: int  # bytes

    @property
    def usable(self) -> int:
        """Bytes that a run can count on."""
        return round(self.total - RESERVED[self.kind])


@dataclass(frozen=True, slots=True)
class Fit:
    """Settings that fit."""

    checkpointing: Checkpointing
    micro_batch: int  # completions per forward and backward pass
    decoded: int
    # update, rollout: bytes at the peaks of the two phases
    update: int
    rollout: int
    host: int = 0  # bytes of pinned host memory, with offloading


@dataclass(frozen=True, slots=True)
class Given:
    """Settings of a user that are not to be chosen; None where they are."""

    checkpointing: Checkpointing | None = None
    micro_batch: int | None = None
    decoded: int | None = None

    @classmethod
    def of(cls, config: RunConfig) -> Given:
        train, asked = config.train, config.train.checkpointing
        return cls(None if asked == "auto" else asked, train.micro_batch_size, config.rollout.batch_size)


FREE = Given()


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be trained."""

    context: int  # tokens of a sequence, prompt and completion
    share: int  # completions that one process trains on per generation; a micro batch divides it
    engine: str = "hf"  # "hf" or "vllm"
    shared: bool = False
    # bytes that vLLM takes for its weights and cache, in which sequences wait for each other; None: it has no such
    # limit
    reserved: int | None = None

    @classmethod
    def of(cls, config: RunConfig, context: int) -> Job:
        """Returns what a configuration trains on one process."""
        train, rollout = config.train, config.rollout
        engine = "hf" if rollout.backend == "hf" else "vllm"
        reserved = 0 if rollout.backend == "vllm-server" else None
        return cls(context, train.prompts_per_step * train.group_size, engine, rollout.share_weights, reserved)

    def rollout(self, model: Shape, sequences: int, device: str, spread: Spread = ALONE) -> int:
        """Bytes while so many sequences are decoded at once, on a kind of device."""
        own = held(model, spread)
        if self.reserved is not None:
            return own + self.reserved
        own += gathered(model, spread) if self.engine == "hf" else 0
        sampling = model.rollout(sequences * self.context, device, engine=self.engine, shared=self.shared)
        return own + sampling - model.fixed


def this_device() -> Device:
    """Returns the first GPU, or the machine's memory within its control group's limit."""
    import torch

    if torch.cuda.is_available():
        return Device("cuda", torch.cuda.get_device_properties(0).total_memory)
    return Device("cpu", host_memory())


def host_memory() -> int:
    """Returns the bytes of the machine's memory within the limit of this process's control group."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [file.read_text().strip() for file in _CGROUP_LIMITS if file.is_file()]
    return min([total, *(int(limit) for limit in limits if limit.isdigit())])


def gpu_memory(text: str) -> int:
    """Reads `24` (GB), `80GB` or `24GiB`; makers of GPUs write GB for GiB, and so does this. Raises UsageError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise UsageError(
            f"--gpu '{text}' is not an amount of memory. Write it like 24, 80GB or 24GiB; a bare number is GB."
        )
    size = float(match[1]) * _UNITS[(match[2] or match[3] or "").lower()]
    if not 1 <= size <= _MOST:
        raise UsageError(f"--gpu '{text}' is more memory than any GPU has. A bare number is GB: write 24 or 80GB.")
    if size <= RESERVED["cuda"]:
        raise UsageError(
            f"--gpu '{text}' is {size / GIB:.2g} GB, and CUDA alone takes {RESERVED['cuda'] / GIB:g}. A bare number is "
            "GB: write 24 or 80GB."
        )
    return round(size)


def best_fit(model: Shape, job: Job, device: Device, given: Given = FREE, spread: Spread = ALONE) -> Fit | None:
    """Returns the settings with the least recomputation, and then the largest batches, that fit; or None."""

    def rollout(sequences: int) -> int:
        return job.rollout(model, sequences, device.kind, spread)

    decoded = given.decoded or _largest(lambda n: rollout(n) <= device.usable, job.share)
    if decoded == 0 or rollout(decoded) > device.usable:
        return None
    micros = [given.micro_batch] if given.micro_batch else range(job.share, 0, -1)
    for checkpointing in (given.checkpointing,) if given.checkpointing else modes(device.kind):
        for micro in (n for n in micros if job.share % n == 0):
            update = peak(model, job.context, micro, spread, checkpointing, device.kind)
            if update <= device.usable:
                host = model.activations.host(micro * job.context) if checkpointing == "offload" else 0
                return Fit(checkpointing, micro, decoded, update, rollout(decoded), host)
    return None


def largest_context(model: Shape, job: Job, device: Device, limit: int) -> int:
    """Returns the most tokens of a sequence, up to `limit`, that train with all of `job.share` decoded at once."""

    def fits(context: int) -> bool:
        if model.rollout(job.share * context, device.kind, engine=job.engine, shared=job.shared) > device.usable:
            return False
        return model.update(context, 1, modes(device.kind)[-1], device.kind) <= device.usable

    return _largest(fits, limit)


def largest_group(model: Shape, job: Job, device: Device, limit: int = 2**20) -> int:
    """Returns the most sequences of `job.context` that can be decoded at once, if one of them can be trained on."""
    if model.update(job.context, 1, modes(device.kind)[-1], device.kind) > device.usable:
        return 0
    return _largest(lambda n: job.rollout(model, n, device.kind) <= device.usable, limit)


def pairs(chosen: Fit) -> list[str]:
    """Returns the settings as `--set` takes them."""
    return [
        *([f"train.checkpointing={chosen.checkpointing}"] if chosen.checkpointing != "none" else []),
        f"train.micro_batch_size={chosen.micro_batch}",
        f"rollout.batch_size={chosen.decoded}",
    ]


def remedies(model: Shape, job: Job, device: Device) -> str:
    """Returns what would make it fit where no settings do."""
    context = largest_context(model, replace(job, share=1), device, job.context)
    if context:
        return f"Up to {context:,} tokens of prompt and completion would fit."
    return (
        "The weights, gradients and optimizer alone are too large: train an adapter (--lora), quantise its base model "
        "(4 bits), or take a smaller model."
    )


def _largest(fits: Callable[[int], bool], limit: int) -> int:
    """Returns the largest number from 1 to `limit` that fits, 0 if none does; `fits` changes at most once."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
