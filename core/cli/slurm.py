"""The batch script of a run for SLURM: its settings and the machines for it in, the text of the script out."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grpo.core.config.defaults import SERVER_PORT

if TYPE_CHECKING:
    from grpo.core.config.schema import RunConfig

RENDEZVOUS = 29500  # the first of a thousand ports; which of them follows from the job's number
SAVING = 120  # seconds before the end of its time at which a run is asked to stop and save

# SLURM signals the steps of a job, and torchrun hands that on to the run, which saves; bash must not end before.
SCRIPT = """\
#!/bin/bash
{% for option in asked %}
#SBATCH {{ option }}
{% endfor %}
# {{ nodes }} x {{ processes }} processes train
{%- if server_nodes %}, {{ server_nodes }} x {{ servers_each }} servers sample{% endif %}.
# Submitted again, it continues the run.
set -euo pipefail

export PYTHON={{ python }}
RUN={{ out }}
mapfile -t NODES < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
with_commas() { local IFS=,; echo "$*"; }
address() { scontrol --oneliner show node "$1" | sed -n 's/.* NodeAddr=\\([^ ]*\\).*/\\1/p'; }
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT={{ saving - 10 }}
{% if server_nodes %}

GRPO_SERVER_TOKEN=$("$PYTHON" -c 'import secrets; print(secrets.token_urlsafe(32))')
export GRPO_SERVER_TOKEN
serve() {  # a server on one node, started again whenever it ends: serve NODE NUMBER
  while true; do
{% if gpus %}
    CUDA_VISIBLE_DEVICES=$(seq -s, $(($2 * {{ split }})) $(($2 * {{ split }} + {{ split - 1 }}))) \\
{% endif %}
    srun --overlap --nodes=1 --ntasks=1 --nodelist="$1" --export=ALL \\
      "$PYTHON" -m grpo serve-rollouts {{ served }} --port $(({{ port }} + $2)) || true
    sleep 2
  done
}
URLS=()
for node in "${NODES[@]:{{ nodes }}}"; do
  for ((number = 0; number < {{ servers_each }}; number++)); do
    serve "$node" "$number" &
    URLS+=("http://$(address "$node"):$(({{ port }} + number))")
  done
done
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
{% endif %}

WHAT=({{ arguments }})
if [ -e "$RUN/versions.json" ]; then WHAT=(--resume "$RUN"); fi
{% if server_nodes %}
WHAT+=(--server-url "$(with_commas "${URLS[@]}")")
{% endif %}
HEAD=$(address "${NODES[0]}")
TRAIN=(--nnodes={{ nodes }} --nproc-per-node={{ processes }})
TRAIN+=(--master-addr="$HEAD" --master-port=$(({{ rendezvous }} + SLURM_JOB_ID % 1000)))
srun --overlap --nodes={{ nodes }} --ntasks={{ nodes }} --export=ALL \\
  --nodelist="$(with_commas "${NODES[@]:0:{{ nodes }}}")" \\
  bash -c 'exec "$PYTHON" -m torch.distributed.run --node-rank="$SLURM_PROCID" "$@"' - \\
  "${TRAIN[@]}" -m grpo run "${WHAT[@]}" &
TRAINING=$!
trap : TERM
wait "$TRAINING" || wait "$TRAINING"
"""


@dataclass(frozen=True, slots=True)
class Machines:
    """What a batch script asks for.

    Attributes:
        nodes: machines that train.
        server_nodes: machines that sample.
        gpus: in each; 0: none.
        processes: that train on each machine.
        split: GPUs that share each layer of a server's engine.
    """

    nodes: int
    server_nodes: int
    gpus: int
    processes: int
    split: int

    @property
    def servers_each(self) -> int:
        """Rollout servers on each machine that samples."""
        return max(1, self.gpus // self.split)


def slurm_script(
    config: RunConfig, machines: Machines, arguments: str, python: str, longest: str | None, options: tuple[str, ...]
) -> str:
    """Returns a batch script.

    Args:
        config: of the run; it names the run directory.
        machines: what it needs.
        arguments: of `grpo run`, quoted for a shell.
        python: the interpreter on the machines.
        longest: a time limit of SLURM, or None for the partition's.
        options: more of sbatch's.
    """
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
    return shell.from_string(SCRIPT).render(
        asked=asked,
        nodes=machines.nodes,
        server_nodes=machines.server_nodes,
        servers_each=machines.servers_each,
        processes=machines.processes,
        gpus=machines.gpus,
        split=machines.split,
        python=shlex.quote(python),
        out=shlex.quote(str(config.out)),
        arguments=arguments,
        served=_served(config, machines),
        port=SERVER_PORT,
        rendezvous=RENDEZVOUS,
        saving=SAVING,
    )


def _served(config: RunConfig, machines: Machines) -> str:
    """Returns the options of `grpo serve-rollouts`, quoted for a shell."""
    found = ["--host", "0.0.0.0"]  # a token is demanded there
    if config.model is not None:
        found += ["--model", config.model]
    if config.lora.enabled and config.rollout.lora_sync != "folded":
        found += ["--lora-rank", str(config.lora.rank)]
        if not isinstance(config.lora.targets, str):
            found += ["--lora-targets", ",".join(config.lora.targets)]
    if config.train.dtype is not None:
        found += ["--dtype", config.train.dtype]
    if machines.split > 1:
        found += ["--tensor-parallel", str(machines.split)]
    return shlex.join(found)
