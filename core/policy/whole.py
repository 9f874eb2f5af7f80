"""The whole policy, however its wrappers shard it: a model of transformers or PEFT in, whole tensors out.

    plain, DDP, ZeRO-1/2    every process has every weight
    FSDP 2                  weights are `DTensor`s; a module's weights are put together for its forward pass
    ZeRO-3                  weights are empty between forward passes; DeepSpeed keeps a shard of each beside them

Every function here that says it is collective has to be called by all processes, in the same order and to its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

# What wrappers put into the names of parameters: DDP and DeepSpeed, torch.compile, checkpointing by accelerate.
WRAPPERS = re.compile(r"^module\.|_orig_mod\.|_checkpoint_wrapped_module\.")


def full_tensors(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields every parameter under the name that it has in the unwrapped model, whole, tied ones once.

    Collective: all processes step together, each gets every tensor, and only one exists at a time that is not there
    anyway. Between two tensors a process may do what it likes.

    Args:
        model: the policy, wrapped or not.

    Yields:
        Name and tensor, on the device that the policy computes on, in the type that is trained. It carries no gradient
        and is to be read only; it may be the policy's own memory, and is to be copied if it is to outlast the step.
    """
    for name, parameter in model.named_parameters():
        with _gathered(parameter):
            yield WRAPPERS.sub("", name), _full(parameter)


def full_shape(parameter: torch.Tensor) -> tuple[int, ...]:
    """Returns the shape that a parameter has when it is whole."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


def is_sharded(model: Any) -> bool:
    """Says whether this process lacks a part of any parameter."""
    return any(isinstance(one, DTensor) or hasattr(one, "ds_id") for one in model.parameters())


@contextmanager
def unsharded(model: Any) -> Iterator[None]:
    """Keeps the weights of FSDP 2 whole, so that a process may make as many forward passes as it likes.

    Collective at its beginning; no pass inside waits for another process. Other models are left alone.
    """
    modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
    groups = [group for module in modules for group in module._get_fsdp_state()._fsdp_param_groups]
    reshards = [(group, group.post_forward_mesh_info) for group in groups]
    for module in modules:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    try:
        yield
    finally:
        for group, mesh in reshards:
            group.post_forward_mesh_info = mesh
        for module in modules:
            module.reshard()


def whole_state(model: Any, dtypes: Mapping[str, torch.dtype], *, keep: bool) -> dict[str, torch.Tensor]:
    """Collects what a folder of weights holds: all of them, or the adapters of a PEFT model. Collective.

    Args:
        model: the policy, wrapped or not.
        dtypes: name of a parameter to the type that it is written in; others keep their own.
        keep: this process writes; the others go along and get nothing.

    Returns:
        Name to tensor on the CPU, with the buffers that belong to the weights.
    """
    adapters = hasattr(model, "peft_config")
    found: dict[str, torch.Tensor] = {}
    for name, parameter in model.named_parameters():
        plain = WRAPPERS.sub("", name)
        if adapters and not parameter.requires_grad and ".lora_" not in plain:
            continue
        with _gathered(parameter):
            tensor = _full(parameter)
            if keep:
                found[plain] = tensor.to("cpu", dtypes.get(plain, tensor.dtype), copy=True)
    if keep and not adapters:
        parameters = {WRAPPERS.sub("", name) for name, _ in model.named_parameters(remove_duplicate=False)}
        for name, tensor in model.state_dict().items():
            if WRAPPERS.sub("", name) not in parameters:
                found[WRAPPERS.sub("", name)] = tensor.to("cpu", copy=True)
    return found


def _gathered(parameter: torch.Tensor) -> AbstractContextManager[Any]:
    """While it lasts, a parameter of ZeRO-3 is whole. Collective."""
    if not hasattr(parameter, "ds_id"):
        return nullcontext()
    from deepspeed.runtime.zero.partition_parameters import GatheredParameters, ZeroParamStatus

    if parameter.ds_status == ZeroParamStatus.AVAILABLE:  # its size keeps it whole, or somebody gathered it
        return nullcontext()
    gathered: AbstractContextManager[Any] = GatheredParameters([parameter])
    return gathered


def _full(parameter: torch.Tensor) -> torch.Tensor:
    tensor = parameter.detach()
    if isinstance(tensor, DTensor):
        kind = tensor.device_mesh.device_type  # weights that FSDP keeps on the CPU are gathered where they compute
        tensor = (tensor if tensor.device.type == kind else tensor.to(kind)).full_tensor()
    return tensor
