"""Adds the engine's side of a sync to vLLM's worker, in this process or in a server's.

vLLM mixes `WorkerExtension` into its worker (`worker_extension_cls`), and calls its methods over `collective_rpc`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

from grpo.core.rollout.sync.group import Meeting, TransferGroup
from grpo.core.rollout.sync.views import WHOLE, Shards, adapter_fingerprints, engine_fingerprints

BACKEND = "grpo"


@dataclass
class StreamInit(WeightTransferInitInfo):
    """Where the trainer waits for this engine's workers; a stream of this process needs no meeting."""

    meeting: dict[str, Any]


@dataclass
class StreamUpdate(WeightTransferUpdateInfo):
    """A stream of named tensors of this process, or what the next tensor of the group is."""

    weights: Any = None
    name: str = ""
    dtype: torch.dtype | None = None
    shape: tuple[int, ...] = ()


class StreamEngine(WeightTransferEngine[StreamInit, StreamUpdate]):
    """Loads named tensors into the engine's model, one at a time."""

    init_info_cls = StreamInit
    update_info_cls = StreamUpdate
    group: TransferGroup | None = None

    def init_transfer_engine(self, init_info: StreamInit) -> None:
        self.shutdown()
        split = self.parallel_config
        worker = split.data_parallel_index * split.world_size + split.rank
        self.group = TransferGroup(Meeting.from_json(init_info.meeting), 1 + worker)

    def start_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: StreamUpdate) -> None:
        """Loads the stream, or the tensor that the trainer sends now."""
        model: Any = self.model
        weights = update_info.weights
        if weights is None:
            if self.group is None or update_info.dtype is None:
                raise RuntimeError(f"{update_info.name} was announced, and no group was joined")
            weights = [(update_info.name, self.group.receive(update_info.dtype, update_info.shape))]
        model.load_weights(iter(weights))

    def finish_weight_update(self) -> None:
        from vllm.model_executor.model_loader import reload

        finish: Any = reload.finalize_layerwise_reload
        finish(self.model, self.model_config)

    def shutdown(self) -> None:
        if self.group is not None:
            self.group.close()
            self.group = None


def shards() -> Shards:
    from vllm.distributed import get_tp_group

    group: Any = get_tp_group()
    if group.world_size == 1:
        return WHOLE
    return Shards(group.world_size, lambda tensor: group.all_gather(tensor.contiguous()[None], dim=0))


class WorkerExtension:
    """What joins vLLM's worker; every name begins with `grpo_` so that none can clash."""

    vllm_config: Any
    model_runner: Any
    device: Any
    start_weight_update: Any
    update_weights: Any
    finish_weight_update: Any

    def grpo_load(self, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Loads a stream of this process as one session."""
        self.grpo_begin()
        try:
            self.update_weights({"weights": weights})
        except BaseException:
            self.grpo_finish()  # so that the engine can be loaded again
            raise
        self.finish_weight_update()

    def grpo_begin(self) -> None:
        """Begins a session in which weights arrive one by one, for workers in processes of their own."""
        self.start_weight_update()

    def grpo_receive(self, name: str, tensor: torch.Tensor) -> None:
        self.update_weights({"weights": [(name, tensor)]})

    def grpo_finish(self) -> None:
        """Ends the session; what was not loaded gets its old values back."""
        self._weight_update_active = True
        self.finish_weight_update()

    def grpo_seed(self, seed: int) -> None:
        """Lets this rank draw the numbers of a seed; all ranks have to draw the same."""
        torch.manual_seed(seed)

    def grpo_put_adapter(self, number: int, rank: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Makes an adapter the only one, from tensors of this process; B carries the scaling."""
        from vllm.lora.lora_model import LoRAModel
        from vllm.lora.peft_helper import PEFTHelper

        workers_loras = self.model_runner.lora_manager
        manager = workers_loras._adapter_manager
        mapper = getattr(manager.model, "hf_to_vllm_mapper", None)
        lora = LoRAModel.from_lora_tensors(
            lora_model_id=number,
            tensors={name: tensor.clone() for name, tensor in tensors.items()},
            peft_helper=PEFTHelper(r=rank, lora_alpha=rank, target_modules=[]),
            device=str(self.device),
            dtype=workers_loras.lora_config.lora_dtype,
            model_vocab_size=workers_loras.vocab_size,
            weights_mapper=mapper.get_rename_mapper() if mapper is not None else None,
        )
        with set_current_vllm_config(self.vllm_config):
            workers_loras.remove_all_adapters()
            manager.add_adapter(lora)
            manager.activate_adapter(number)

    def grpo_fingerprints(self, seed: int) -> dict[str, int]:
        with set_current_vllm_config(self.vllm_config):
            return engine_fingerprints(self.model_runner.get_model(), seed, shards())

    def grpo_adapter_fingerprints(self, number: int, seed: int, ranks: dict[str, int]) -> dict[str, int]:
        manager = self.model_runner.lora_manager._adapter_manager
        return adapter_fingerprints(manager, number, seed, ranks, shards())


if BACKEND not in WeightTransferEngineFactory._registry:
    WeightTransferEngineFactory.register_engine(BACKEND, StreamEngine)
