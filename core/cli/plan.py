"""Implements `grpo plan`: where the memory of a run goes, which settings fit a GPU, what a step costs on a cluster."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grpo.core.cli.bar import status_line
from grpo.core.cli.flags import SettingsCommand, every_flag, given
from grpo.core.cli.options import AT_LEAST_ONE, CONTEXT_LENGTH
from grpo.core.config.defaults import default_completion
from grpo.plugins.errors import UsageError

if TYPE_CHECKING:
    from grpo.core.config.schema import RunConfig
    from grpo.core.planning.gpus import Cluster, Gpu, Placement, Work
    from grpo.core.planning.memory.budget import Device, Fit, Job
    from grpo.core.planning.memory.estimate import Shape
    from grpo.core.planning.memory.proposal import Proposal

CONTEXT = 2048  # tokens, where nothing says how long sequences are
LOSSES = {"naive": "all logits", "trl": "TRL's head", "grpo": "grpo's head"}
MAX_CONTEXT = 2**20  # tokens, where a model names no limit of its own


class PlanCommand(SettingsCommand):
    """Takes the rank of an adapter right after --lora, too."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Reads `--lora 16` as `--lora --lora-rank 16`."""
        spelled = list(args)
        for at, (flag, value) in reversed(list(enumerate(itertools.pairwise(args)))):
            if flag == "--lora" and value.isdecimal():
                spelled.insert(at + 1, "--lora-rank")
        return super().parse_args(context, spelled)


@click.command(name="plan", cls=PlanCommand)
@click.option(
    "--context",
    type=CONTEXT_LENGTH,
    help=f"Tokens of prompt and completion. Default: what the rows of --env need, else {CONTEXT}.",
)
@click.option("--gpu", metavar="SIZE", help="GPU, for example H100, or its memory in GB. Default: this machine's.")
@click.option("--nodes", type=AT_LEAST_ONE, help="Machines for which to calculate the cost of a step, with --gpu NAME.")
@click.option("--gpus-per-node", type=AT_LEAST_ONE, default=8, help="GPUs in each machine. Default: 8.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; sizes in bytes.")
@every_flag
def plan(
    context: int | None,
    gpu: str | None,
    nodes: int | None,
    gpus_per_node: int,
    as_json: bool,
    config_file: Path | None,
    pairs: tuple[str, ...],
    **values: Any,
) -> None:
    """Show where the memory of a run goes and which settings fit.

    Takes the flags of `grpo run`; --lora 16 is short for --lora --lora-rank 16. --model may be a built-in shape. No
    weights are loaded, and nothing is downloaded for built-in shapes.
    """
    from grpo.core.config.schema import load_config

    config = load_config(config_file, pairs, given(values), env_required=False)
    with status_line("loading libraries") as begins:
        text, notes = planned(config, context, gpu, (nodes, gpus_per_node), begins, as_json=as_json)
    click.echo(text)
    for note in notes:
        click.echo(f"note: {note}", err=True)


def planned(
    config: RunConfig,
    context: int | None,
    gpu: str | None,
    cluster: tuple[int | None, int],
    begins: Callable[[str], None],
    *,
    as_json: bool,
) -> tuple[str, list[str]]:
    """Returns what is printed, and notes; UsageError for settings that cannot work or rows that cannot be read."""
    from grpo.core.env.mixture import bound_envs
    from grpo.core.planning.agent import own_prompt
    from grpo.core.planning.decide import context_of
    from grpo.core.planning.facts import Facts
    from grpo.core.planning.gpus import device_of, gpu_of
    from grpo.core.planning.memory.budget import GIB, Given, Job, best_fit, this_device
    from grpo.core.planning.memory.estimate import shape
    from grpo.core.planning.memory.fit import versions
    from grpo.core.planning.memory.proposal import proposed
    from grpo.core.planning.memory.shapes import built_in, policy_shape
    from grpo.core.planning.objective import bind_objective
    from grpo.core.planning.output import RUNS
    from grpo.core.planning.sync import decide_sync
    from grpo.core.planning.training import decide_optimizer, refuse_uneven_batch, slips
    from grpo.core.policy.load import PolicySource
    from grpo.core.rollout.types import context_length
    from grpo.core.timing.expected import expected, judges_of
    from grpo.plugins.host import Host

    nodes, gpus_per_node = cluster
    host = Host.discover()
    bind_objective(config, host)
    device = this_device() if gpu is None else device_of(gpu)
    model_config = policy_shape(config.model)
    on_gpu = (device.kind == "cuda" or nodes is not None) and config.model is not None
    dtype = config.train.dtype or ("bfloat16" if on_gpu else "float32")
    sync = decide_sync(config, dtype)
    longest = context_length(model_config)
    notes = []
    if context is None and config.env and (config.model is None or built_in(config.model) is None):
        begins("measuring the prompts")
        context = context_of(config, host)
    elif context is None:
        context = min(CONTEXT, longest or CONTEXT)
        if config.env:
            notes.append(f"a built-in shape has no tokenizer: {context:,} tokens are assumed, which --context changes")
    if config.agent is not None:
        notes.append(f"{own_prompt(config.agent)}\nname what prompts and calls have together with --context")
    completion = config.rollout.max_completion_length
    if completion is not None and completion >= context:
        raise UsageError(
            f"--max-completion-length {completion} leaves no room for a prompt in {context} tokens. Name what prompt "
            "and completion have together with --context."
        )
    if longest is not None and context > longest:
        raise UsageError(f"--context {context} is over the model's own {longest}.")
    facts = Facts(PolicySource("", config.model is None), bound_envs(config, host) if config.env else (), host, 1)
    notes += slips(config, facts, decide_optimizer(config, facts), model_config)
    refuse_uneven_batch(config, facts)
    begins("counting memory")
    kind = device.kind if nodes is None else "cuda"
    measured = shape(model_config, dtype, config.lora, reference=config.loss.beta > 0, device=kind)
    if nodes is not None:
        return cluster_plan(config, measured, context, gpu_of(gpu), nodes, gpus_per_node, as_json=as_json), notes
    measured = replace(measured, versions=versions(measured, config.rollout.ahead))
    if sync == "delta":
        if device.kind == "cpu":
            measured = replace(measured, sent=measured.weights)
        else:
            notes.append(
                f"a copy of the weights as the rollout server was sent them last takes {measured.weights / GIB:.1f} "
                "GiB of host memory, here and there (rollout.weight_sync=everything does without)"
            )
    batch = Job.of(config, context)
    group = replace(batch, share=config.train.group_size)
    kept = Given.of(config)
    chosen = best_fit(measured, batch, device, kept)
    other = None if chosen else best_fit(measured, batch, device)
    shares = chosen is None and other is None and device.kind == "cuda"
    more = proposed(measured, batch, device, gpus_per_node, kept) if shares else None
    coming = None
    if config.env:
        coming = expected(config, judges_of(config, host), RUNS, gpus=int(device.kind == "cuda"))
    if as_json:
        text = summary(measured, group, device, (chosen, more), longest or MAX_CONTEXT)
        return json.dumps(text | ({"expected": coming.summary()} if coming else {}), indent=2), []
    lora = config.lora
    how = f"LoRA of rank {lora.rank}" + (" on 4-bit weights" if lora.bits else "")
    title = (config.model or "the embedded model", f"{how if lora.enabled else 'full fine-tuning'} in {dtype}")
    table = report(title, measured, group, device, (chosen, other, more), longest)
    return "\n".join([*table, *(["", *coming.lines()] if coming else [])]), notes


def lines(shape: Shape, job: Job, device: Device) -> list[tuple[str, str, int]]:
    """Returns the table: what, for how much, bytes."""
    whole = job.share * job.context
    single, group, on_gpu = "1 sequence", f"{job.share} sequences", device.kind == "cuda"
    table = [
        ("weights", "", shape.weights),
        ("adapter", "", shape.adapter),
        ("reference policy", "", shape.reference),
        ("weights last sent", "", shape.sent),
        ("versions sampled from", "", shape.versions),
        ("gradients", "", shape.gradients),
        ("optimizer", "", shape.optimizer),
        ("activations", single, shape.activations.peak(job.context, "none")),
        ("activations, checkpointed", single, shape.activations.peak(job.context, "full")),
        *((("activations, offloaded", single, shape.activations.peak(job.context, "offload")),) if on_gpu else ()),
        *((("host memory for them", single, shape.activations.host(job.context)),) if on_gpu else ()),
        ("attention mask", group, shape.mask(job.context, job.share)),
        *((f"loss, {name}", group, shape.loss(whole, head, device.kind)) for head, name in LOSSES.items()),
        ("KV cache", single, job.context * shape.cache),
        ("KV cache", group, whole * shape.cache),
    ]
    if job.engine == "vllm":
        table.append(("weights of vLLM", "", 0 if job.shared else shape.parameters * shape.itemsize))
    return [line for line in table if line[2] or line[0] == "weights of vLLM"]


def summary(
    shape: Shape, job: Job, device: Device, fits: tuple[Fit | None, Proposal | None], limit: int
) -> dict[str, Any]:
    """Returns what --json prints; sizes in bytes."""
    from grpo.core.planning.memory.budget import largest_context, largest_group

    chosen, more = fits
    return {
        "parameters": shape.parameters,
        "device": {"kind": device.kind, "total": device.total, "usable": device.usable},
        "memory": [{"what": what, "of": of or None, "bytes": size} for what, of, size in lines(shape, job, device)],
        "settings": asdict(chosen) if chosen else None,
        "sharded": asdict(more) if more else None,
        "largest_context": largest_context(shape, job, device, limit),
        "largest_group": largest_group(shape, job, device),
    }


def report(
    title: tuple[str, str],
    shape: Shape,
    job: Job,
    device: Device,
    fits: tuple[Fit | None, Fit | None, Proposal | None],
    longest: int | None,
) -> list[str]:
    """Returns what is printed for a person; sizes in GiB."""
    from grpo.core.planning.memory.budget import GIB, largest_context, largest_group, pairs, remedies
    from grpo.core.planning.memory.proposal import described, launch_command

    def gib(size: int) -> str:
        return f"{size / GIB:.{1 if size >= GIB / 10 else 3}f}"

    where = "GPU" if device.kind == "cuda" else "machine"
    table = lines(shape, job, device)
    width = max(len(what) for what, _, _ in table)
    limit = longest or MAX_CONTEXT
    context = largest_context(shape, job, device, limit)
    printed = [
        f"{title[0]}: {shape.parameters / 1e6:,.1f} M parameters, {shape.layers} layers, hidden {shape.hidden}, "
        f"vocabulary {shape.vocabulary:,}",
        f"{title[1]}, {job.share} completions of up to {job.context:,} tokens with their prompt",
        f"{where} with {gib(device.total)} GiB, {gib(device.usable)} of them usable",
        "",
        f"{'':<{width}}  {'':<14}  {'GiB':>8}",
        *(f"{what:<{width}}  {of:<14}  {gib(size):>8}" for what, of, size in table),
        "",
    ]
    chosen, other, more = fits
    if chosen is None and other is not None:
        settings = " ".join(f"--set {pair}" for pair in pairs(other))
        printed.append(f"does not fit with the settings that were given. These fit: {settings}")
    elif chosen is None and more is not None:
        printed += [
            f"does not fit on one. {remedies(shape, job, device)}",
            f"{described(more)}: {gib(more.fit.update)} GiB in an update, {gib(more.fit.rollout)} GiB while "
            "generating, with",
            "  " + " ".join(f"--set {pair}" for pair in pairs(more.fit)),
            f"  started by: {launch_command(more)} ...",
        ]
    elif chosen is None:
        printed.append(f"does not fit. {remedies(shape, job, device)}")
    else:
        printed += [
            f"fits: {gib(chosen.update)} GiB in an update, {gib(chosen.rollout)} GiB while generating, with",
            *([f"  {gib(chosen.host)} GiB of host memory and"] if chosen.host else []),
            "  " + " ".join(f"--set {pair}" for pair in pairs(chosen)),
        ]
    if not context:  # one device does not even hold the weights
        return printed
    printed += [
        f"largest context with {job.share} decoded at once: {context:,} tokens"
        + (" (the model's own limit)" if context == longest else ""),
        f"most sequences of {job.context:,} tokens decoded at once: {largest_group(shape, job, device):,}",
    ]
    return printed


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
