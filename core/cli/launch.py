"""Writes the batch script of `grpo launch`, which starts a run and its rollout servers on several machines."""

from __future__ import annotations

import re
import shlex
import stat
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from grpo.core.cli.options import AT_LEAST_ONE, CONTEXT_LENGTH
from grpo.core.config.defaults import SERVER_PORT, default_completion
from grpo.core.text.printable import counted
from grpo.plugins.errors import UsageError

if TYPE_CHECKING:
    from grpo.core.config.schema import RunConfig

LONGEST = re.compile(r"(\d+-)?\d{1,3}(:\d{2}){0,2}")  # 90, 12:00:00, 2-00:00:00
RENDEZVOUS = 29500  # the first of a thousand ports; which of them follows from the job's number
# What `accelerate launch --use_fsdp --fsdp_version 2` sets.
FSDP = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT",
}
ASSUMED = 80  # GiB of a GPU that nobody names
PROMPT = 1024  # tokens that are assumed before a completion
SAVING = 120  # seconds before the end of its time at which a run is asked to stop and save

# SLURM signals the steps of a job, and torchrun hands that on to the run, which saves; bash must not end before.
SCRIPT = Path(__file__).with_name("slurm.sh.jinja")


@dataclass(frozen=True, slots=True)
class Machines:
    """What a batch script asks for."""

    nodes: int  # machines that train
    server_nodes: int  # machines that sample
    gpus: int  # in each; 0: none
    processes: int  # that train on each machine
    split: int  # GPUs that share each layer of a server's engine
    sharded: bool = False  # the processes share the policy, by FSDP 2

    @property
    def servers_each(self) -> int:
        """Rollout servers on each machine that samples."""
        return max(1, self.gpus // self.split)


class LaunchCommand(click.Command):
    """Says where the arguments of the run belong if one stands among its own options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads the options. Raises click.NoSuchOption."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            where = "The arguments of grpo run follow after --, as in: grpo launch --slurm -- --env gsm8k"
            raise click.NoSuchOption(error.option_name, f"{error.message} {where}", ctx=ctx) from None


@click.command(name="launch", cls=LaunchCommand)
@click.option("--slurm", is_flag=True, help="Write a batch script for SLURM.")
@click.option("--nodes", type=AT_LEAST_ONE, default=1, help="Training machines. Default: 1.")
@click.option(
    "--gpus-per-node", "gpus", type=click.IntRange(min=0), default=8, help="GPUs of each machine. Default: 8."
)
@click.option(
    "--processes-per-node",
    "processes",
    type=AT_LEAST_ONE,
    help="Training processes on each machine. Default: one per GPU.",
)
@click.option(
    "--server-nodes", type=click.IntRange(min=0), default=0, help="Additional machines for rollout servers. Default: 0."
)
@click.option("--tensor-parallel", "split", type=AT_LEAST_ONE, default=1, help="GPUs per server. Default: 1.")
@click.option(
    "--gpu", metavar="SIZE", help="GPU of the machines, for example H100 or 80GB. Default: this machine's, else 80GB."
)
@click.option(
    "--sharding",
    type=click.Choice(["auto", "none", "fsdp2"]),
    default="auto",
    help="Sharding of the policy. Default: auto, which is FSDP 2 if one GPU cannot hold the run.",
)
@click.option("--context", type=CONTEXT_LENGTH, help="Tokens of prompt and completion, to decide what fits one GPU.")
@click.option("--time", "longest", metavar="D-HH:MM:SS", help="Time limit. Default: the partition's.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="TEXT",
    help="Option for sbatch, for example --partition=gpu; repeat for several.",
)
@click.option("--python", metavar="PATH", default=sys.executable, help="Python on the machines. Default: this one.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File for the script. Default: print it.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def launch(
    slurm: bool,
    nodes: int,
    gpus: int,
    processes: int | None,
    server_nodes: int,
    split: int,
    gpu: str | None,
    sharding: str,
    context: int | None,
    longest: str | None,
    options: tuple[str, ...],
    python: str,
    output: Path | None,
    arguments: tuple[str, ...],
) -> None:
    """Write the batch script that starts a run on a cluster and continues it when submitted again.

    The arguments of `grpo run` follow after `--`, with --out in a folder that all machines share.
    """
    from grpo.core.record.run_dir import is_run

    if not slurm:
        raise UsageError(
            "grpo launch writes a batch script for SLURM: add --slurm. One machine needs no script: start "
            "`torchrun --standalone --nproc-per-node 8 -m grpo run ...`. A cluster of Ray: `grpo run --on ray ...`."
        )
    if longest is not None and not LONGEST.fullmatch(longest):
        raise UsageError(f"--time {longest} is no time limit of SLURM. Write it like 12:00:00 or 2-00:00:00.")
    if any("\n" in option or not option.startswith("-") for option in options):
        raise UsageError("--option takes what sbatch takes, with its dashes: --option=--partition=gpu")
    if gpus and gpus % split:
        raise UsageError(f"--tensor-parallel {split} does not divide the {gpus} GPUs of a machine.")
    machines = Machines(nodes, server_nodes, gpus, processes or max(1, gpus), split)
    config = _checked(arguments, machines)
    sharded = sharding == "fsdp2"
    if sharding == "auto" and gpus:
        sharded, note = _shares(config, machines, gpu, context)
        if note:
            click.echo(f"note: {note}", err=True)
    text = _slurm_script(config, replace(machines, sharded=sharded), shlex.join(arguments), python, longest, options)
    if config.out is not None and is_run(Path(config.out)):
        click.echo(f"note: {config.out} holds a run already: the job continues that one, with its settings.", err=True)
    if output is None:
        click.echo(text, nl=False)
        return
    from grpo.core.record.run_dir import whole_file

    try:
        if output.exists() and output.read_text() != text:
            raise UsageError(f"{output} exists already and differs. Remove it, or choose another -o.")
        with whole_file(output) as unfinished:
            unfinished.write_text(text)
        output.chmod(output.stat().st_mode | stat.S_IXUSR)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}. Choose another -o.") from None
    click.echo(f"wrote {output}; submit it with: sbatch {shlex.quote(str(output))}")


def _checked(arguments: tuple[str, ...], machines: Machines) -> RunConfig:
    from grpo.core.cli.flags import given, naming_flags
    from grpo.core.cli.run import run
    from grpo.core.config.schema import load_config

    try:
        values = run.make_context("grpo run", list(arguments)).params
    except click.exceptions.Exit:
        raise UsageError("grpo launch takes the arguments of a run that trains; leave --help out.") from None
    if values.pop("resume_from") is not None or values.pop("dry_run"):
        raise UsageError("leave --resume and --dry-run out: the script continues the run of --out where there is one.")
    if values["place"] is not None:
        raise UsageError("--on ray is for a cluster of Ray, and this script is for SLURM: leave it out.")
    values.pop("quiet")
    with naming_flags(values):
        config = load_config(values["config_file"], values["pairs"], given(values))
    if config.out is None:
        raise UsageError("name the run directory with --out, in a folder that all machines see.")
    total = machines.nodes * machines.processes
    completions = config.train.prompts_per_step * config.train.group_size
    if completions % total:
        raise UsageError(
            f"{config.train.prompts_per_step} prompts x {config.train.group_size} completions cannot be dealt out to "
            f"{total} processes. Change --prompts-per-step, --group-size or --nodes."
        )
    served = config.rollout.backend == "vllm-server"
    if served != bool(machines.server_nodes):
        raise UsageError(
            "--server-nodes go with --rollout vllm-server: " + ("add them." if served else "add it, or leave them out.")
        )
    return config


def _shares(config: RunConfig, machines: Machines, gpu: str | None, context: int | None) -> tuple[bool, str]:
    """Returns whether one GPU cannot hold a run, so that its processes share the policy, and a note."""
    from grpo.core.planning.gpus import SPARE, device_of
    from grpo.core.planning.memory.budget import GIB, Device, Given, Job, best_fit, this_device
    from grpo.core.planning.memory.estimate import shape
    from grpo.core.planning.memory.proposal import proposed
    from grpo.core.planning.memory.shapes import policy_shape
    from grpo.core.planning.memory.sharded import Spread
    from grpo.core.rollout.types import context_length

    note = ""
    if gpu is not None:
        device = device_of(gpu)
    elif (device := this_device()).kind != "cuda":
        device, note = Device("cuda", ASSUMED * GIB), f"GPUs of {ASSUMED} GB are assumed; name yours with --gpu."
    try:
        model_config = policy_shape(config.model)
        dtype = config.train.dtype or ("float32" if config.model is None else "bfloat16")
        measured = shape(model_config, dtype, config.lora, reference=config.loss.beta > 0, device=device.kind)
    except UsageError as error:
        return False, f"not sharded, because it is not known here whether one GPU holds it: {error} See --sharding."
    if context is None:
        completion = config.rollout.max_completion_length or default_completion(embedded=config.model is None)
        context = min(completion + PROMPT, context_length(model_config) or completion + PROMPT)
    whole, processes, given = Job.of(config, context), machines.nodes * machines.processes, Given.of(config)
    own = replace(whole, share=whole.share // processes)
    if machines.server_nodes and measured.parameters * measured.itemsize / machines.split > SPARE * device.usable:
        raise UsageError(
            f"a server's engine of {measured.parameters * measured.itemsize / GIB:.0f} GiB does not fit on "
            f"{machines.split} of these GPUs. Raise --tensor-parallel."
        )
    if best_fit(measured, own, device, given) is not None:
        return False, note
    if best_fit(measured, own, device, given, Spread(processes, "everything")) is not None:
        return True, f"one GPU cannot hold policy and optimizer: the {processes} share them by FSDP 2. {note}"
    more = proposed(measured, whole, device, machines.processes, given)
    served = " and --rollout vllm-server" if more and more.served else ""
    remedy = (
        f"It takes --nodes {more.nodes}{served}" if more else "Take larger GPUs (--gpu), a shorter context or --lora"
    )
    raise UsageError(
        f"{counted(processes, 'GPU')} of {device.total / GIB:.0f} GB cannot hold "
        f"{config.model or 'the embedded model'} with {context:,} tokens, sharded as far as possible. {remedy}.\n"
        "Where the memory goes: grpo plan\nTo write the script all the same: --sharding fsdp2"
    )


def _slurm_script(
    config: RunConfig, machines: Machines, arguments: str, python: str, longest: str | None, options: tuple[str, ...]
) -> str:
    """Returns a batch script that runs `arguments` of `grpo run`, quoted for a shell."""
    from jinja2 import Environment, StrictUndefined

    asked = [
        f"--job-name={re.sub(r'[^A-Za-z0-9_.-]', '-', Path(str(config.out)).name) or 'grpo'}",
        f"--nodes={machines.nodes + machines.server_nodes}",
        "--ntasks-per-node=1",
        *([f"--gpus-per-node={machines.gpus}"] if machines.gpus else []),
        *([f"--time={longest}"] if longest else []),
        f"--signal=TERM@{SAVING}",
        "--requeue",
        "--open-mode=append",
        *options,
    ]
    shell = Environment(trim_blocks=True, undefined=StrictUndefined, keep_trailing_newline=True)
    return shell.from_string(SCRIPT.read_text(encoding="utf-8")).render(
        **asdict(machines),
        asked=asked,
        servers_each=machines.servers_each,
        python=shlex.quote(python),
        out=shlex.quote(str(config.out)),
        arguments=arguments,
        served=_served(config, machines),
        variables=FSDP if machines.sharded else {},
        port=SERVER_PORT,
        rendezvous=RENDEZVOUS,
        saving=SAVING,
    )


def _served(config: RunConfig, machines: Machines) -> str:
    flags = ["--host", "0.0.0.0"]  # a token is demanded there
    if config.model is not None:
        flags += ["--model", config.model]
    if config.lora.enabled and config.rollout.lora_sync != "folded":
        flags += ["--lora-rank", str(config.lora.rank)]
        if not isinstance(config.lora.targets, str):
            flags += ["--lora-targets", ",".join(config.lora.targets)]
    if config.train.dtype is not None:
        flags += ["--dtype", config.train.dtype]
    if machines.split > 1:
        flags += ["--tensor-parallel", str(machines.split)]
    return shlex.join(flags)
