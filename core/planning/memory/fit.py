"""Decides whether a run fits into this machine's memory, and with which checkpointing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpo.core.config.defaults import Dtype
from grpo.core.config.schema import RunConfig
from grpo.core.config.settings import Checkpointing, RolloutSettings
from grpo.core.planning.memory.budget import GIB, Device, Job, best_fit, pairs, remedies, this_device
from grpo.core.planning.memory.estimate import Shape, modes, shape
from grpo.core.planning.memory.proposal import described, launch_command, proposed
from grpo.core.planning.memory.sharded import Spread, peak
from grpo.core.processes.sharding import asked_sharding
from grpo.plugins.errors import UsageError

GPUS_PER_NODE = 8  # where nobody says how many


@dataclass(frozen=True, slots=True)
class Load:
    """What a run puts into memory beside its model."""

    micro_batch: int  # completions of a forward and backward pass
    dtype: Dtype  # of the weights
    rollout: RolloutSettings
    longest_prompt: int  # in tokens
    processes: int = 1  # that share the machine's memory, or have a GPU each
    max_turns: Sequence[int] = (1,)

    @property
    def spread(self) -> Spread:
        """How the processes share the policy."""
        return Spread.of(asked_sharding(), self.processes)

    @property
    def context(self) -> int:
        """Tokens of the longest sequence."""
        return self.longest_prompt + self.rollout.length


def decide_memory(config: RunConfig, load: Load, model_config: Any) -> Checkpointing:
    """Chooses the mode of checkpointing; "none" if the model cannot be counted. Raises UsageError without room."""
    train = config.train
    device = this_device()
    chooses = train.checkpointing == "auto" and device.kind == "cuda"
    measured = _measured(config, load, model_config, device) if chooses or train.check_memory else None
    if train.checkpointing != "auto":
        checkpointing: Checkpointing = train.checkpointing
    elif chooses and measured is not None:
        checkpointing = fastest_checkpointing(config, load, measured, device)
    else:
        checkpointing = "none"
    if train.check_memory and measured is not None:
        refuse_no_room(config, load, measured, checkpointing, device)
    return checkpointing


def fastest_checkpointing(config: RunConfig, load: Load, measured: Shape, device: Device) -> Checkpointing:
    """Returns the mode of checkpointing with the least recomputation whose update fits the GPU."""
    rollout, size = load.rollout, (load.context, load.micro_batch)
    engine = rollout.memory_share * device.total if rollout.backend == "vllm" else 0
    room = device.usable - engine
    ways = modes(device.kind)
    needed = {mode: peak(measured, *size, load.spread, mode, device.kind, config.train.head) for mode in ways}
    return next((mode for mode in ways if needed[mode] <= room), ways[-1])


def refuse_no_room(
    config: RunConfig, load: Load, measured: Shape, checkpointing: Checkpointing, device: Device
) -> None:
    """Refuses a run that this machine's memory cannot hold."""
    train, rollout = config.train, load.rollout
    if device.kind == "cpu":
        device = replace(device, total=device.total // load.processes)
    share = train.prompts_per_step * train.group_size // load.processes
    job = Job(load.context, share)
    if rollout.backend == "vllm-server":
        job = replace(job, reserved=0)
    elif rollout.backend == "vllm" and device.kind == "cuda":
        engine = round(rollout.memory_share * device.total)
        # Else vLLM gives its memory up during updates.
        awake = rollout.ahead > 0 or rollout.share_weights or rollout.sleep is False
        device = replace(device, total=device.total - engine) if awake else device
        job = replace(job, reserved=0 if awake else engine)
    decoded = rollout.batch_size or share * parts_of(rollout, load.max_turns)
    spread, micro = load.spread, load.micro_batch
    update = peak(measured, job.context, micro, spread, checkpointing, device.kind, train.head)
    needed = max(update, job.rollout(measured, decoded, device.kind, spread))
    if needed <= device.usable:
        return
    chosen = best_fit(measured, job, device, spread=spread)
    remedy = f"This fits: {' '.join(f'--set {pair}' for pair in pairs(chosen))}" if chosen else ""
    raise UsageError(
        f"the run needs about {needed / GIB:.1f} GiB of memory ({'update' if needed == update else 'generation'}), and "
        f"{device.usable / GIB:.1f} GiB are usable.\n{remedy or _more(measured, job, device, load.processes)}\n"
        "Where the memory goes: grpo plan\nTo try all the same: --set train.check_memory=false"
    )


def _more(measured: Shape, job: Job, device: Device, processes: int) -> str:
    whole = replace(job, share=job.share * processes)
    more = proposed(measured, whole, device, GPUS_PER_NODE) if device.kind == "cuda" else None
    if more is None:
        return remedies(measured, job, device)
    settings = " ".join(f"--set {pair}" for pair in pairs(more.fit))
    return f"{described(more)}: {launch_command(more)} ... {settings}"


def parts_of(rollout: RolloutSettings, max_turns: Sequence[int]) -> int:
    """Returns the parts of the longest rollout, each of one turn at least: rollouts of so many steps are under way."""
    if not rollout.partial:
        return 1
    turns = [min(rollout.turns, most) for most in max_turns]
    parts = [-(-number * rollout.max_completion_length // rollout.partial) for number in turns]
    return max(part if number == 1 else min(part, number) for part, number in zip(parts, turns, strict=True))


def versions(measured: Shape, ahead: int) -> int:
    """Returns the bytes of the copies of what trains that there are with so many batches ahead; of one, none."""
    return ahead * measured.gradients if ahead > 1 else 0


def _measured(config: RunConfig, load: Load, model_config: Any, device: Device) -> Shape | None:
    """Measures the model of a run; rows are packed where prompts may be shared and our head trains."""
    train = config.train
    try:
        measured = shape(model_config, load.dtype, config.lora, reference=config.loss.beta > 0, device=device.kind)
    except UsageError:
        return None
    keeps = load.rollout.weight_sync == "delta" and device.kind == "cpu"
    return replace(
        measured,
        packs=measured.packs and train.share_prompts and train.head == "grpo",
        sent=measured.weights if keeps else 0,
        versions=versions(measured, load.rollout.ahead),
    )
