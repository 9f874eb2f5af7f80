"""`grpo` in one of several processes that really shard a policy, on a CPU: FSDP 2 and DeepSpeed over gloo.

    torchrun ... sharded_command.py ARGUMENTS OF grpo

The variables of `accelerate launch` say what is sharded (`environment`). What is undone here is what keeps both
libraries from a CPU: accelerate takes FSDP for GPUs only, and DeepSpeed compiles an operator for memory that processes
share, which takes minutes. Nothing of ours is replaced.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from grpo.core.cli import launch

# What a script of `grpo launch` sets, and what `accelerate launch` adds to it.
FSDP = {**launch.FSDP, "FSDP_CPU_RAM_EFFICIENT_LOADING": "true", "ACCELERATE_TORCH_DEVICE": "cpu"}
PLAIN = {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "GLOO_SOCKET_IFNAME": "lo"}


def zero(stage: int, folder: Path) -> dict[str, str]:
    """Variables of `accelerate launch` for DeepSpeed, whose every tensor is sharded however small it is."""
    settings = {
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
    }
    config = folder / f"zero{stage}.json"
    config.write_text(json.dumps(settings))
    return {
        "ACCELERATE_USE_DEEPSPEED": "true",
        "ACCELERATE_DEEPSPEED_CONFIG_FILE": str(config),
        "DS_ACCELERATOR": "cpu",
    }


AS_IT_IS = ("-m", "grpo")  # with the libraries as they are


def command(
    arguments: Sequence[str], sharding: Mapping[str, str], program: Sequence[str] = (__file__,), processes: int = 2
) -> subprocess.Popen[str]:
    """Starts `grpo`, or a program around it, in several processes."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return subprocess.Popen(
        [*launcher, *program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **PLAIN, **sharding},
    )


def run(
    arguments: Sequence[str],
    sharding: Mapping[str, str],
    program: Sequence[str] = (__file__,),
    *,
    code: int = 0,
    processes: int = 2,
) -> str:
    """Runs `grpo`, or a program around it; returns what its processes said when they ended with this code."""
    from patience import RUN  # it loads pytest, which the processes need not

    process = command(arguments, sharding, program, processes)
    said, _ = process.communicate(timeout=RUN)
    assert process.returncode == code, said[-5000:]
    return said


def undo_what_keeps_libraries_from_a_cpu() -> None:
    if os.environ.get("ACCELERATE_USE_FSDP") == "true":
        import torch.distributed
        from accelerate.state import DistributedType, PartialState

        torch.distributed.init_process_group("gloo")
        PartialState._prepare_backend = lambda self, *a, **k: ("gloo", DistributedType.MULTI_GPU)
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        vars(importlib.import_module("deepspeed.comm.torch"))["build_shm_op"] = lambda: None


if __name__ == "__main__":
    undo_what_keeps_libraries_from_a_cpu()
    sys.argv[0] = "grpo"
    runpy.run_module("grpo", run_name="__main__")
