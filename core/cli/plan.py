"""`grpo plan`: a model, a context and a GPU in; where the memory goes, and the settings that fit, out."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grpo.core.cli.flags import checked_flag
from grpo.plugins.errors import UsageError

if TYPE_CHECKING:
    from grpo.core.planning.memory.budget import Device, Fit, Job
    from grpo.core.planning.memory.estimate import Shape

AT_LEAST_ONE = click.IntRange(min=1)
LOSSES = {"naive": "all logits", "trl": "TRL's head", "grpo": "grpo's head"}
MAX_CONTEXT = 2**20  # tokens, where a model names no limit of its own


@click.command(name="plan")
@click.option("--model", metavar="NAME", help="A built-in shape, a folder or a hub id. Default: the embedded model.")
@click.option("--context", type=AT_LEAST_ONE, default=2048, help="Tokens, prompt and completion. Default: 2048.")
@checked_flag("train.group_size")
@click.option("--lora", "rank", metavar="RANK", type=AT_LEAST_ONE, help="Train an adapter of this rank.")
@checked_flag("lora.bits")
@click.option(
    "--dtype", type=click.Choice(["bfloat16", "float16", "float32"]), default="bfloat16", help="Default: bfloat16."
)
@click.option("--kl", is_flag=True, help="With a KL term (loss.beta above 0).")
@checked_flag("rollout.backend", ("hf", "vllm"))
@checked_flag("rollout.share_weights")
@click.option("--gpu", metavar="SIZE", help="Memory of the GPU, for example 80GB. Default: this machine's.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, in bytes.")
def plan(
    model: str | None,
    context: int,
    group_size: int,
    rank: int | None,
    bits: str | None,
    dtype: str,
    kl: bool,
    rollout: str,
    share_weights: bool,
    gpu: str | None,
    as_json: bool,
) -> None:
    """Show where the memory of a run goes and which settings fit, from a configuration alone.

    No weights are loaded and nothing is downloaded for the built-in shapes.
    """
    from grpo.core.config.sections import LoraSection
    from grpo.core.planning.memory.budget import Device, Job, best_fit, parse_size, this_device
    from grpo.core.planning.memory.estimate import shape
    from grpo.core.planning.memory.shapes import shape_of
    from grpo.core.policy.weights import training_source
    from grpo.core.record.run_dir import is_run
    from grpo.core.rollout.types import context_length

    if bits and not rank:
        raise UsageError("--bits 4 quantises weights that stay frozen: name the rank of the adapter with --lora.")
    if share_weights and (rollout != "vllm" or bits):
        raise UsageError("--share-weights is for --rollout vllm with weights that are not quantised.")
    device = Device("cuda", parse_size(gpu)) if gpu else this_device()
    named = model is None or is_run(Path(model).expanduser())
    config = shape_of(training_source(model).path if named else str(model))
    lora = LoraSection(enabled=True, rank=rank, bits=4 if bits else None) if rank else LoraSection()
    measured = shape(config, dtype, lora, reference=kl)
    longest = context_length(config)
    if longest is not None and context > longest:
        raise UsageError(f"--context {context} is over the model's own {longest}.")
    job = Job(context, group_size, rollout, share_weights)
    chosen = best_fit(measured, job, device)
    if as_json:
        click.echo(json.dumps(summary(measured, job, device, chosen, longest or MAX_CONTEXT), indent=2))
    else:
        how = f"LoRA of rank {rank}" + (" on 4-bit weights" if bits else "") if rank else "full fine-tuning"
        title = (model or "the embedded model", f"{how} in {dtype}")
        click.echo("\n".join(report(title, measured, job, device, chosen, longest)))


def lines(shape: Shape, job: Job, device: Device) -> list[tuple[str, str, int]]:
    """Returns the table: what, for how much, bytes."""
    whole = job.share * job.context
    one, group, on_gpu = "1 sequence", f"{job.share} sequences", device.kind == "cuda"
    table = [
        ("weights", "", shape.weights),
        ("adapter", "", shape.adapter),
        ("reference policy", "", shape.reference),
        ("gradients", "", shape.gradients),
        ("optimizer", "", shape.optimizer),
        ("activations", one, shape.activations.peak(job.context, "none")),
        ("activations, checkpointed", one, shape.activations.peak(job.context, "full")),
        *((("activations, offloaded", one, shape.activations.peak(job.context, "offload")),) if on_gpu else ()),
        *((("host memory for them", one, shape.activations.host(job.context)),) if on_gpu else ()),
        ("attention mask", group, shape.mask(job.context, job.share)),
        *((f"loss, {name}", group, shape.loss(whole, head, device.kind)) for head, name in LOSSES.items()),
        ("KV cache", one, job.context * shape.cache),
        ("KV cache", group, whole * shape.cache),
    ]
    if job.engine == "vllm":
        table.append(("weights of vLLM", "", 0 if job.shared else shape.parameters * shape.itemsize))
    return [line for line in table if line[2] or line[0] == "weights of vLLM"]


def summary(shape: Shape, job: Job, device: Device, chosen: Fit | None, limit: int) -> dict[str, Any]:
    """Returns what --json prints; sizes in bytes."""
    from grpo.core.planning.memory.budget import largest_context, largest_group

    return {
        "parameters": shape.parameters,
        "device": {"kind": device.kind, "total": device.total, "usable": device.usable},
        "memory": [{"what": what, "of": of or None, "bytes": size} for what, of, size in lines(shape, job, device)],
        "settings": dataclasses.asdict(chosen) if chosen else None,
        "largest_context": largest_context(shape, job, device, limit),
        "largest_group": largest_group(shape, job, device),
    }


def report(
    title: tuple[str, str], shape: Shape, job: Job, device: Device, chosen: Fit | None, longest: int | None
) -> list[str]:
    """Returns what is printed for a person; sizes in GiB."""
    from grpo.core.planning.memory.budget import GIB, largest_context, largest_group, pairs, remedies

    def gib(size: int) -> str:
        return f"{size / GIB:.{1 if size >= GIB / 10 else 3}f}"

    where = "GPU" if device.kind == "cuda" else "machine"
    table = lines(shape, job, device)
    width = max(len(what) for what, _, _ in table)
    limit = longest or MAX_CONTEXT
    context = largest_context(shape, job, device, limit)
    found = [
        f"{title[0]}: {shape.parameters / 1e6:,.1f} M parameters, {shape.layers} layers, hidden {shape.hidden}, "
        f"vocabulary {shape.vocabulary:,}",
        f"{title[1]}, {job.share} completions of up to {job.context:,} tokens with their prompt",
        f"{where} with {gib(device.total)} GiB, {gib(device.usable)} of them to count on",
        "",
        f"{'':<{width}}  {'':<14}  {'GiB':>8}",
        *(f"{what:<{width}}  {of:<14}  {gib(size):>8}" for what, of, size in table),
        "",
    ]
    if chosen is None:
        found.append(f"does not fit. {remedies(shape, job, device)}")
    else:
        found += [
            f"fits: {gib(chosen.update)} GiB in an update, {gib(chosen.rollout)} GiB while generating, with",
            *([f"  {gib(chosen.host)} GiB of host memory and"] if chosen.host else []),
            "  " + " ".join(f"--set {pair}" for pair in pairs(chosen)),
        ]
    found += [
        f"largest context with {job.share} decoded at once: {context:,} tokens"
        + (" (the model's own limit)" if context == longest else ""),
        f"most sequences of {job.context:,} tokens decoded at once: {largest_group(shape, job, device):,}",
    ]
    return found
