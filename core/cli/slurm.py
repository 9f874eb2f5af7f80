"""Writes the batch script of a run for SLURM."""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from grpo.core.config.defaults import SERVER_PORT, default_completion
from grpo.core.text.printable import counted
from grpo.plugins.errors import UsageError

if TYPE_CHECKING:
    from grpo.core.config.schema import RunConfig

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


def shares(config: RunConfig, machines: Machines, gpu: str | None, context: int | None) -> tuple[bool, str]:
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
        f"{config.model or 'the embedded model'} with {context:,} tokens, sharded as far as possible. {remedy}. "
        "Where the memory goes: grpo plan. "
        "To write the script all the same: --sharding fsdp2"
    )


def slurm_script(
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
