"""Collects the whole weights of a policy, whichever way DDP, FSDP 2 or ZeRO shards it.

    plain, DDP, ZeRO-1/2    every process has every weight
    FSDP 2                  weights are `DTensor`s; a module's weights are put together for its forward pass
    ZeRO-3                  weights are empty between forward passes; DeepSpeed keeps a shard of each beside them

A collective function has to be called by all processes, in the same order and to its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor

# What wrappers put into the names of parameters: DDP and DeepSpeed, torch.compile, checkpointing by accelerate.
WRAPPERS = re.compile(r"^module\.|_orig_mod\.|_checkpoint_wrapped_module\.")


def full_tensors(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields name and whole tensor of every parameter under its unwrapped name, tied ones once. Collective.

    One whole tensor exists at a time, on the policy's device and in the trained type, without a gradient. It is to be
    read only and copied if kept: it may be the policy's own memory. What FSDP 2 kept whole after a forward pass is
    released first, since FSDP could not free it once something else, such as a NumPy array, looks into it.
    """
    _reshard(model)
    for name, parameter in model.named_parameters():
        with full_tensor(parameter) as whole:
            yield WRAPPERS.sub("", name), whole


@contextmanager
def full_tensor(parameter: torch.Tensor) -> Iterator[torch.Tensor]:
    """Gathers the whole of a parameter for the block, to be read only. Collective."""
    with _gathered(parameter):
        yield _full(parameter)


@contextmanager
def changed_weights(model: Any, changes: Mapping[str, Callable[[torch.Tensor], torch.Tensor]]) -> Iterator[None]:
    """Changes some weights for the block and restores them bit for bit. Collective at its beginning.

    Each process changes its own part. `changes`: name of a parameter to what makes the whole new tensor of the whole
    old one, alike on all processes.
    """
    _reshard(model)  # before it is asked for its parameters, which are others when they are whole
    named = dict(model.named_parameters())
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    try:
        for name, change in changes.items():
            parameter = named[name]
            _release(parameter)
            with full_tensor(parameter) as whole:
                new = change(whole)
            for own, part in _own_parts(parameter, new):
                kept.append((own, own.clone()))
                own.copy_(part)
        yield
    finally:
        _reshard(model)
        for name in changes:
            _release(named[name])
        for own, before in kept:
            own.copy_(before)


def full_shape(parameter: torch.Tensor) -> tuple[int, ...]:
    """Returns the shape that a parameter has when it is whole."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


def is_sharded(model: Any) -> bool:
    """Returns whether this process lacks a part of any parameter."""
    return any(isinstance(parameter, DTensor) or hasattr(parameter, "ds_id") for parameter in model.parameters())


@contextmanager
def unsharded(model: Any) -> Iterator[None]:
    """Keeps the weights of FSDP 2 whole for any number of forward passes; other models are left alone. Collective."""
    modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
    groups = [group for module in modules for group in fsdp_groups(module)]
    reshards = [(group, group.post_forward_mesh_info) for group in groups]
    for module in modules:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    try:
        yield
    finally:
        for group, mesh in reshards:
            group.post_forward_mesh_info = mesh
        _reshard(model)


@contextmanager
def passes_of_its_own(engine: Any) -> Iterator[None]:
    """Lets each process make any number of forward passes with gathered ZeRO-3 weights; other models are left alone.

    Else a hook of DeepSpeed's would compare the passes of all processes, a collective.
    """
    offload = getattr(getattr(engine, "optimizer", None), "parameter_offload", None)
    if offload is None:
        yield
        return
    handle = offload.fwd_pre_hook
    hooks = handle.hooks_dict_ref()
    hook = hooks.pop(handle.id)
    try:
        yield
    finally:
        hooks[handle.id] = hook


def fsdp_groups(module: FSDPModule) -> list[Any]:
    """Returns the groups of parameters that a module of FSDP 2 shards together; torch 2.11 has one or none."""
    state: Any = module._get_fsdp_state()
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    return [state._fsdp_param_group] if state._fsdp_param_group is not None else []


def whole_state(model: Any, dtypes: Mapping[str, torch.dtype], *, keep: bool) -> dict[str, torch.Tensor]:
    """Collects the tensors of a weights folder on the CPU: all, or the adapters of a PEFT model. Collective.

    `dtypes`: of parameters in the file; others keep their own. `keep`: this process writes; the others get nothing.
    Buffers that belong to the weights are included.
    """
    adapters = hasattr(model, "peft_config")
    state: dict[str, torch.Tensor] = {}
    for name, parameter in model.named_parameters():
        plain = WRAPPERS.sub("", name)
        if adapters and not parameter.requires_grad and ".lora_" not in plain:
            continue
        with full_tensor(parameter) as tensor:
            if keep:
                state[plain] = tensor.to("cpu", dtypes.get(plain, tensor.dtype), copy=True)
    if keep and not adapters:
        parameters = {WRAPPERS.sub("", name) for name, _ in model.named_parameters(remove_duplicate=False)}
        for name, tensor in model.state_dict().items():
            if WRAPPERS.sub("", name) not in parameters:
                state[WRAPPERS.sub("", name)] = tensor.to("cpu", copy=True)
    return state


def _gathered(parameter: Any) -> AbstractContextManager[Any]:
    if not hasattr(parameter, "ds_id") or _is_whole(parameter):
        return nullcontext()
    from deepspeed.runtime.zero.partition_parameters import GatheredParameters

    gathered: AbstractContextManager[Any] = GatheredParameters([parameter])
    return gathered


def _full(parameter: torch.Tensor) -> torch.Tensor:
    if not isinstance(parameter, DTensor):
        return parameter.detach()
    kind = parameter.device_mesh.device_type  # weights that FSDP keeps on the CPU are gathered where they compute
    shard: Any = parameter.detach() if parameter.device.type == kind else parameter.detach().to(kind)
    whole: torch.Tensor = shard.full_tensor()
    return whole


def _own_parts(parameter: Any, whole: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    if isinstance(parameter, DTensor):
        own: Any = parameter.detach()
        part: Any = distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
        yield own.to_local(), part.to_local()
        return
    if hasattr(parameter, "ds_id"):
        shard = parameter.ds_tensor.data
        first = torch.distributed.get_rank(parameter.ds_process_group) * shard.numel()
        part = whole.reshape(-1)[first : first + shard.numel()]
        yield shard[: part.numel()], part
        if not _is_whole(parameter):
            return
    yield parameter.detach(), whole


def _reshard(model: Any) -> None:
    """Releases what FSDP 2 keeps whole after a forward pass, which would not follow its shards."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def _release(parameter: Any) -> None:
    """Releases a tensor that ZeRO-3 keeps whole after a forward pass, unless it always does."""
    if hasattr(parameter, "ds_id") and _is_whole(parameter) and not parameter.ds_persist:
        parameter.partition()


def _is_whole(parameter: Any) -> bool:
    """Returns whether a parameter of ZeRO-3 is whole: its size keeps it so, or it is gathered."""
    from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus

    whole: bool = parameter.ds_status == ZeroParamStatus.AVAILABLE
    return whole
