"""Prints what a step costs on a cluster, for `grpo plan --nodes`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from grpo.core.config.defaults import default_completion

if TYPE_CHECKING:
    from grpo.core.config.schema import RunConfig
    from grpo.core.planning.gpus import Cluster, Gpu, Placement, Work
    from grpo.core.planning.memory.estimate import Shape

PARTS = {
    "sample": "sampling",
    "update": "update",
    "communicate": "gradients and shards between GPUs",
    "sync": "weights to the engines",
}
SHARDED = {
    "none": "the policy whole on each (DDP)",
    "optimizer": "gradients and optimizer sharded (ZeRO-2)",
    "everything": "weights, gradients and optimizer sharded (ZeRO-3, FSDP)",
}


def cluster_plan(
    config: RunConfig, shape: Shape, context: int, gpu: Gpu, nodes: int, per_node: int, *, as_json: bool
) -> str:
    """Returns the text that is printed; UsageError where it fits nowhere."""
    from grpo.core.planning.gpus import Cluster, Work, place, whole_sync

    completion = config.rollout.max_completion_length or default_completion(embedded=config.model is None)
    completion = min(completion, context - 1)
    work = Work(
        prompts=config.train.prompts_per_step,
        group=config.train.group_size,
        prompt=context - completion,
        completion=completion,
        passes=config.loss.num_iterations,
        adapter=config.lora.enabled,
        ahead=config.rollout.ahead > 0,
        apart=config.rollout.backend == "vllm-server",
    )
    cluster = Cluster(gpu, nodes, per_node)
    placed = place(shape, work, cluster)
    whole = whole_sync(shape, placed)
    if as_json:
        return json.dumps(
            {"calculated": True, **asdict(placed), "step": placed.step, "sync_of_all_weights": whole}, indent=2
        )
    return "\n".join(_report(shape, work, cluster, placed, whole, config))


def _report(
    shape: Shape, work: Work, cluster: Cluster, placed: Placement, whole: float, config: RunConfig
) -> list[str]:
    gpu = cluster.gpu
    where = (
        f"{placed.sampling} GPUs sample, {placed.training} train"
        if work.apart
        else f"all {placed.training} GPUs sample and then train"
    )
    engine = f", {placed.split} of them to an engine" if placed.split > 1 else ""
    width = max(map(len, PARTS.values()))
    lines = [
        "calculated from published figures and assumed shares of them, not measured (docs/scale.md)",
        "",
        f"{config.model or 'the embedded model'}: {shape.parameters / 1e6:,.1f} M parameters, "
        f"{'LoRA' if work.adapter else 'full fine-tuning'}",
        f"{work.prompts} prompts x {work.group} completions of {work.completion:,} tokens after {work.prompt:,}",
        f"{cluster.nodes} x {cluster.per_node} {gpu.name}: {where}{engine}",
        f"{SHARDED[placed.sharding]}; {placed.memory / 2**30:.1f} of {gpu.memory / 2**30:.0f} GiB in an update",
        "",
        f"{'':<{width}}  {'seconds':>9}",
        *(f"{text:<{width}}  {placed.seconds[part]:>9.3g}" for part, text in PARTS.items()),
        f"{'a step':<{width}}  {placed.step:>9.3g}",
        "",
        f"bottleneck: {PARTS[placed.bottleneck]}",
    ]
    if not work.adapter:
        lines.append(f"sync: {placed.sync_bytes / 1e9:.3g} GB of what changed; all weights would take {whole:.3g} s")
    steps = config.train.steps
    if steps:
        hours = placed.step * steps * cluster.count / 3600
        lines.append(f"{steps:,} steps: {placed.step * steps / 3600:.3g} hours, {hours:,.3g} GPU-hours")
    return lines
