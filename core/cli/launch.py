"""Writes the batch script of `grpo launch`, which starts a run and its rollout servers on several machines."""

from __future__ import annotations

import re
import shlex
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from grpo.core.cli.options import AT_LEAST_ONE
from grpo.core.cli.slurm import Machines, shares, slurm_script
from grpo.plugins.errors import UsageError

if TYPE_CHECKING:
    from grpo.core.config.schema import RunConfig

LONGEST = re.compile(r"(\d+-)?\d{1,3}(:\d{2}){0,2}")  # 90, 12:00:00, 2-00:00:00


@click.command(name="launch")
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
@click.option("--context", type=AT_LEAST_ONE, help="Tokens of prompt and completion, to decide what fits one GPU.")
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
        sharded, note = shares(config, machines, gpu, context)
        if note:
            click.echo(f"note: {note}", err=True)
    text = slurm_script(config, replace(machines, sharded=sharded), shlex.join(arguments), python, longest, options)
    if config.out is not None and is_run(Path(config.out)):
        click.echo(f"note: {config.out} holds a run already: the job continues that one, with its settings.", err=True)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        if output.exists() and output.read_text() != text:
            raise UsageError(f"{output} exists already and differs. Remove it, or choose another -o.")
        output.write_text(text)
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
