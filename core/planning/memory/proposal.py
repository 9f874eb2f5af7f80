"""Finds the fewest GPUs that hold a run which one does not, and how they share its policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from grpo.core.planning.memory.budget import FREE, Device, Fit, Given, Job, best_fit
from grpo.core.planning.memory.estimate import Shape
from grpo.core.planning.memory.sharded import Spread

MOST_NODES = 64


@dataclass(frozen=True, slots=True)
class Proposal:
    """Machines that hold a run, with settings."""

    nodes: int
    per_node: int  # GPUs of each that train
    fit: Fit
    # the policy is too large to sample by itself or beside an engine: rollout servers on other GPUs do
    served: bool = False

    @property
    def gpus(self) -> int:
        return self.nodes * self.per_node


def proposed(model: Shape, job: Job, device: Device, per_node: int, given: Given = FREE) -> Proposal | None:
    """Returns the fewest GPUs that hold a run sharded, None if too few do; `job.share` is of all processes."""
    if model.weights != model.parameters * model.itemsize:  # 4 bits, which are not sharded
        return None
    own = _fewest(model, job, device, per_node, given)
    if own is not None or job.reserved is not None:
        return own
    served = _fewest(model, replace(job, engine="vllm", reserved=0), device, per_node, given)
    return served and replace(served, served=True)


def _fewest(model: Shape, job: Job, device: Device, per_node: int, given: Given) -> Proposal | None:
    for nodes, each in _machines(per_node):
        gpus = nodes * each
        if job.share % gpus:
            continue
        fit = best_fit(model, replace(job, share=job.share // gpus), device, given, Spread(gpus, "everything"))
        if fit is not None:
            return Proposal(nodes, each, fit)
    return None


def described(proposal: Proposal) -> str:
    """Returns the beginning of a sentence: which GPUs hold the run, and how."""
    servers = " and sampled by rollout servers on others (--rollout vllm-server)" if proposal.served else ""
    return f"{proposal.gpus} such GPUs hold it, sharded by FSDP 2 (or ZeRO-3){servers}"


def launch_command(proposal: Proposal) -> str:
    """Returns what starts a run so, before its own arguments."""
    if proposal.nodes > 1:
        servers = " --server-nodes 1" if proposal.served else ""
        return (
            f"grpo launch --slurm --nodes {proposal.nodes}{servers} --gpus-per-node {proposal.per_node} "
            "--sharding fsdp2 --"
        )
    return (
        "accelerate launch --use_fsdp --fsdp_version 2 --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP "
        f"--fsdp_state_dict_type SHARDED_STATE_DICT --num_processes {proposal.per_node} -m grpo run"
    )


def _machines(per_node: int) -> Iterator[tuple[int, int]]:
    gpus = 2
    while gpus < per_node:
        yield 1, gpus
        gpus *= 2
    nodes = 1
    while nodes <= MOST_NODES:
        yield nodes, per_node
        nodes *= 2
