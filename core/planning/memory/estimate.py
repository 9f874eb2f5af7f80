"""Estimates the memory of a run in bytes, item by item, before anything loads.

Weights, adapter, gradients and optimizer are counted from the model's own modules, activations from a forward pass
without data (core/planning/memory/activations.py). The rest is arithmetic:

- loss workspace, N tokens, H hidden, V vocabulary, b bytes a value. All logits: two copies of them, 2 N V b. TRL 1.16:
  a tile of 4096 x 32768 logits, the gradient of the hidden states in float32 and again in b, and that of a trained
  head in float32. grpo: a tile, a row of H for each token (or its gradient), and the gradient of a trained head
  before it joins the others, see grpo.kernels.
- attention masks of the packed row (core/train/update/packing.py): one for each length of completions that share a
  prompt, at most one a sequence, each of at most w + 8 columns and rows for sequences of w tokens.
- cache of keys and values, L tokens, l layers, k key-value heads of d: 2 l k d L b for each sequence, with k and d as
  each layer has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from grpo.core.config.sections import LoraSection
from grpo.core.config.settings import Checkpointing
from grpo.core.planning.memory.activations import Activations, count_activations, count_cache, empty_policy
from grpo.core.policy.blocks import SUPPORTED
from grpo.core.train.update.adamw import STATES
from grpo.core.train.update.packing import MASK_SIZE, MASK_STEP
from grpo.kernels.fused import WORKSPACE
from grpo.kernels.tiles import default_tile
from grpo.plugins.errors import UsageError

CHECKPOINTING: tuple[Checkpointing, ...] = ("none", "full", "offload")  # from the fastest to the least memory
NF4_BYTES = (4 + 8 / 64 + 32 / (64 * 256)) / 8  # a weight of QLoRA: 4 bits, its block's scale, and the scale's own
TRL_TILE = 4096 * 32768


@dataclass(frozen=True, slots=True)
class Shape:
    """What memory depends on in a model and how it is trained; bytes unless it says otherwise."""

    parameters: int
    hidden: int
    vocabulary: int
    layers: int
    itemsize: int  # of a weight and an activation
    weights: int  # of the base model as it is held
    adapter: int
    gradients: int
    optimizer: int
    reference: int  # of the frozen copy that a KL term needs; 0 for an adapter, which is switched off instead
    head_trains: bool
    cache: int  # keys and values of one token
    activations: Activations
    packs: bool = False
    sent: int = 0  # of the copy of the weights as a rollout server was sent them last, where it is in the same memory
    versions: int = 0  # of the copies of what trains from which batches ahead are sampled

    @property
    def fixed(self) -> int:
        """Bytes that are there in every phase."""
        return self.weights + self.adapter + self.optimizer + self.reference + self.sent + self.versions

    def loss(self, tokens: int, head: str, device: str = "cuda") -> int:
        """Bytes for the log-probabilities of `tokens` completion tokens and their gradient; `device`: its type."""
        row = self.hidden * self.itemsize
        if head == "naive":
            return 2 * tokens * self.vocabulary * self.itemsize
        if head == "trl":
            trained = self.vocabulary * self.hidden * 4 if self.head_trains else 0
            logits = min(TRL_TILE, tokens * self.vocabulary) * self.itemsize
            return logits + tokens * (self.hidden * 4 + row) + trained
        tile = default_tile(torch.device(device))
        rows, columns = min(tile.rows, tokens), min(tile.columns, self.vocabulary)
        work = rows * columns * 4
        if self.head_trains:
            if device == "cpu" and self.itemsize == 4:
                work = min(WORKSPACE, tokens * self.vocabulary * 4)
            own = self.vocabulary * self.hidden * self.itemsize + columns * self.hidden * 4
            return work + own + tokens * (self.hidden * 4 + row)
        return work + rows * self.hidden * 4 + 2 * tokens * row

    def mask(self, context: int, sequences: int) -> int:
        """Bytes of the largest attention masks for so many sequences; one that is alone has none."""
        if not self.packs or sequences == 1:
            return 0
        return min(MASK_SIZE, sequences * (context + MASK_STEP) ** 2) * self.itemsize

    def update(self, context: int, sequences: int, checkpointing: str, device: str = "cuda", head: str = "grpo") -> int:
        """Bytes at the peak of an update, for a micro batch of so many sequences of `context` tokens."""
        tokens = context * sequences
        kept = (
            "full" if device == "cpu" and checkpointing == "offload" else checkpointing
        )  # there it is the same memory
        return (
            self.fixed
            + self.gradients
            + self.activations.peak(tokens, kept)
            + self.mask(context, sequences)
            + self.loss(tokens, head, device)
        )

    def rollout(self, tokens: int, device: str = "cuda", *, engine: str = "hf", shared: bool = False) -> int:
        """Bytes while completions are generated; `tokens` are those of all sequences decoded at once, prompts included.

        `engine`: "hf" uses the policy itself, and in float32 a copy of its weights where it folds an adapter or, on a
        CPU, lays them out for decoding; "vllm" holds its own.
        """
        whole = self.parameters * self.itemsize
        copies = (self.adapter > 0 or device == "cpu") and self.itemsize == 4 and self.weights == whole
        own = whole if (copies if engine == "hf" else not shared) else 0
        return self.fixed + own + tokens * self.cache


def shape(config: Any, dtype: str, lora: LoraSection, *, reference: bool = False, device: str = "cuda") -> Shape:
    """Measures a model from its configuration, as it is trained on a type of device. Raises UsageError."""
    model = empty_policy(config, dtype, lora)
    itemsize = getattr(torch, dtype).itemsize
    base = model.get_base_model() if lora.enabled else model
    head = base.get_output_embeddings()
    adapters = [p for p in model.parameters() if p.requires_grad] if lora.enabled else []
    own = {id(p) for p in adapters}
    held = {id(p): p for p in model.parameters() if id(p) not in own}
    trained = adapters if lora.enabled else list(held.values())
    text = config.get_text_config()
    sizes = {"adapter": _bytes(adapters), "gradients": _bytes(trained)}
    # Adam's moments have the dtype of what they belong to
    sizes["optimizer"] = sum(_bytes([p]) * (STATES if p.dtype == torch.bfloat16 else 2) for p in trained)
    try:
        if device == "cuda" and dtype == "bfloat16":  # under autocast an adapter computes in it (update/layers.py)
            for weight in adapters:
                weight.data = weight.data.to(torch.bfloat16)
        activations = count_activations(model)
        cache = count_cache(model)
        vocabulary, hidden = head.weight.shape
    except Exception as error:  # what is counted is what the model's own code does, and that raises anything
        raise UsageError(
            f"cannot count the memory of a model of type '{config.model_type}' without its weights ("
            f"{type(error).__name__}: {' '.join(str(error).split())}). `grpo run` does without this count."
        ) from error
    weights = _bytes(held.values()) if lora.bits is None else _quantised_bytes(base, held)
    return Shape(
        parameters=sum(p.numel() for p in held.values()),
        hidden=hidden,
        vocabulary=vocabulary,
        layers=text.num_hidden_layers,
        itemsize=itemsize,
        weights=weights,
        **sizes,
        reference=0 if lora.enabled or not reference else weights,
        head_trains=any(p.requires_grad for p in head.parameters()),
        cache=round(cache),
        activations=activations,
        packs=text.model_type in SUPPORTED,
    )


def modes(device: str) -> tuple[Checkpointing, ...]:
    """Returns the modes of checkpointing that save something; a CPU's own memory is the host's."""
    return CHECKPOINTING if device == "cuda" else CHECKPOINTING[:2]


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _quantised_bytes(base: Any, held: dict[int, torch.Tensor]) -> int:
    """Counts 4 bits for linear layers but the output layer, and float32 for the rest, as PEFT trains it."""
    head = base.get_output_embeddings()
    total = 0.0
    quantised = {
        id(module.weight) for module in base.modules() if isinstance(module, torch.nn.Linear) and module is not head
    }
    for key, tensor in held.items():
        total += tensor.numel() * (NF4_BYTES if key in quantised else 4)
    return round(total)
