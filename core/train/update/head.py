"""Computes log-probabilities and entropies from the policy's output layer without making logits.

With `logp_labels`, a model's forward runs the backbone, over packed rows where the model takes them, and hands the
labelled positions to `grpo.kernels.linear_logp`. The call goes through the model's own forward, so that whatever wraps
it (PEFT, DDP, FSDP, autocast) does its part.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from grpo.core.policy.attention import attend_in_blocks
from grpo.core.policy.blocks import ATTENTION, SUPPORTED, can_pack
from grpo.core.train.update.packing import IGNORED
from grpo.kernels import linear_logp
from grpo.kernels.fused import Coefficients
from grpo.kernels.logp import Entropy
from grpo.plugins.errors import UsageError

Gather = Callable[..., AbstractContextManager[Any]]
Adapter = tuple[torch.Tensor, torch.Tensor, float]
OTHER_HEAD = "Use TRL's head with train.head='trl'."


def already_whole(*_: Any) -> AbstractContextManager[None]:
    """Returns what gathers parameters where they are not sharded."""
    return nullcontext()


def attach_logps(model: Any, temperature: float, gather: Gather = already_whole) -> None:
    """Lets `model(..., logp_labels=labels, logp_entropy="value")` return log-probabilities.

    The result has `logps` [B, L] float32, 0 where the label is -100, and `entropy` [B, L], with a gradient for "grad",
    None for "none". A label stands at the position that predicts it. `logp_coefficients` are those of `linear_logp` for
    the labelled positions, row by row. `model`: a causal language model of transformers, not wrapped by PEFT. `gather`:
    given parameters, a context in which they are whole (ZeRO-3).
    """
    if can_pack(model.config):
        attend_in_blocks(model.config)
    inner = model.forward
    softcap, scale = logit_shape(model.config.get_text_config())

    @functools.wraps(inner)
    def forward(
        self: Any,
        *args: Any,
        logp_labels: torch.Tensor | None = None,
        logp_entropy: Entropy = "none",
        logp_coefficients: Coefficients | None = None,
        **kwargs: Any,
    ) -> Any:
        if logp_labels is None:
            return inner(*args, **kwargs)
        attention = self.config.get_text_config()._attn_implementation
        if kwargs.get("attention_blocks") is not None and attention != ATTENTION:
            raise UsageError(
                f"a model that attends by '{attention}' cannot be told which tokens of a packed row see which. Compute "
                "plain rows, with pack_for=None, or load a model of these families with attn_implementation='sdpa': "
                f"{', '.join(sorted(SUPPORTED))}."
            )
        hidden = self.base_model(*args, **kwargs, use_cache=False).last_hidden_state
        layer = self.get_output_embeddings()
        weight, bias, lora = head_parameters(layer)
        if hidden.device != weight.device:  # a model split over devices can end on another one than its head
            hidden, logp_labels = hidden.to(weight.device), logp_labels.to(weight.device)
        labelled = logp_labels != IGNORED
        logps, entropy = linear_logp(
            hidden[labelled],
            weight,
            logp_labels[labelled],
            bias=bias,
            temperature=temperature,
            softcap=softcap,
            logit_scale=scale,
            lora=lora,
            entropy=logp_entropy,
            coefficients=logp_coefficients,
            gathered=functools.partial(gather, weight, bias),
        )

        def spread(values: torch.Tensor) -> torch.Tensor:
            return values.new_zeros(labelled.shape).masked_scatter(labelled, values)

        return {"logps": spread(logps), "entropy": spread(entropy) if entropy is not None else None}

    model.forward = types.MethodType(forward, model)


def logit_shape(config: Any) -> tuple[float | None, float]:
    """Returns the softcap and the factor of a model's logits, from its configuration."""
    softcap = getattr(config, "final_logit_softcapping", None)
    for name in ("logit_scale", "output_multiplier", "lm_head_multiplier"):
        factor = getattr(config, name, None)
        if factor is not None:
            return softcap, float(factor)
    divisor = getattr(config, "logits_scaling", None)
    if divisor is None:
        return softcap, 1.0
    return softcap, float(divisor) if config.model_type == "hyperclovax" else 1.0 / divisor


def head_parameters(layer: Any) -> tuple[torch.Tensor, torch.Tensor | None, Adapter | None]:
    """Returns weight, bias and active adapter of an output layer. Raises UsageError."""
    from peft.tuners.lora import LoraLayer
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import ModulesToSaveWrapper

    if isinstance(layer, ModulesToSaveWrapper):
        active = [name for name in layer.active_adapters if name in layer.modules_to_save]
        layer = layer.modules_to_save[active[0]] if active and not layer.disable_adapters else layer.original_module
    adapter = None
    if isinstance(layer, BaseTunerLayer):
        if not isinstance(layer, LoraLayer):
            raise UsageError(
                f"the output layer carries a {type(layer).__name__}, which is not a LoRA adapter. {OTHER_HEAD}"
            )
        adapter = _adapter(layer)
        layer = layer.get_base_layer()
    if not isinstance(layer, nn.Linear) or not layer.weight.is_floating_point():
        raise UsageError(f"the output layer is a {type(layer).__name__}, not a linear layer of numbers. {OTHER_HEAD}")
    return _whole(layer.weight), _whole(layer.bias), adapter


def _adapter(layer: Any) -> Adapter | None:
    names = [name for name in layer.active_adapters if name in layer.lora_A]
    if not names or layer.disable_adapters or layer.merged:
        return None
    name = names[0]
    variant = bool(layer.lora_variant) if hasattr(layer, "lora_variant") else bool(getattr(layer, "use_dora", None))
    if len(names) > 1 or variant or layer.lora_B[name].bias is not None:
        raise UsageError(
            "the output layer carries several adapters or a variant of LoRA (DoRA, a bias). Leave lm_head out of "
            f"lora.targets, or use one plain adapter. {OTHER_HEAD}"
        )
    dropout = layer.lora_dropout[name]
    if layer.training and getattr(dropout, "p", 0.0) > 0:
        raise UsageError("lora.dropout does not work with an adapter on the output layer: set it to 0.")
    return _whole(layer.lora_A[name].weight), _whole(layer.lora_B[name].weight), float(layer.scaling[name])


def _whole(parameter: Any) -> Any:
    """Gathers a parameter sharded by FSDP 2; its gradient is averaged over processes and sharded, as FSDP does it."""
    if not hasattr(parameter, "full_tensor"):
        return parameter
    from torch.distributed.tensor import Partial

    mesh = parameter.device_mesh
    whole = parameter.full_tensor(grad_placements=[Partial()] * mesh.ndim)
    if whole.requires_grad:
        whole.register_hook(lambda gradient: gradient / mesh.size())
    return whole
