"""`grpo` in one of several processes of which the second one has trouble in the middle of a step.

    torchrun ... troubled_command.py TROUBLE ARGUMENTS OF grpo

The trouble comes in its backward pass of the third step, where the others wait for its gradients: an exception, full
memory, a signal, a disk that is full from then on (a limit on the size of files stands in for it), or nothing at all
any more. Policies are sharded as `sharded_command` does it.
"""

from __future__ import annotations

import os
import resource
import runpy
import signal
import sys
import time
from collections.abc import Callable

import sharded_command

STEP = 3


def raises() -> None:
    raise ValueError("a kernel failed")


def fills_its_memory() -> None:
    import torch

    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def fills_the_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 10, 1 << 10))


def is_told_to_stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def is_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hangs() -> None:
    time.sleep(3600)


TROUBLES = {one.__name__: one for one in (raises, fills_its_memory, fills_the_disk, is_told_to_stop, is_killed, hangs)}


def troubled(trouble: Callable[[], None]) -> None:
    """Lets the trouble come."""
    from accelerate import Accelerator

    backward, steps = Accelerator.backward, [0]

    def counted(self: Accelerator, *arguments: object, **named: object) -> None:
        steps[0] += 1
        if steps[0] == STEP:
            trouble()
        backward(self, *arguments, **named)

    Accelerator.backward = counted


if __name__ == "__main__":
    sharded_command.undo_what_keeps_libraries_from_a_cpu()
    what = sys.argv.pop(1)
    if os.environ["RANK"] == "1":
        troubled(TROUBLES[what])
    sys.argv[0] = "grpo"
    runpy.run_module("grpo", run_name="__main__")
