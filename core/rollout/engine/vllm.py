"""Runs vLLM inside this process: samples token ids and returns their log-probabilities.

On a GPU the engine releases its memory between rollouts. It gets weights through vLLM's weight-transfer session and
adapters as tensors, by the methods of core/rollout/sync/worker.py.

Where several processes train together, each has an engine on its own device. Started as by an external launcher, vLLM
takes its device from LOCAL_RANK and makes groups of one process instead of using the training's process group. All
processes have to start their engines together.
"""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch

from grpo.core.rollout.engine.link import ServedEngine
from grpo.core.rollout.sync.delta import Announced
from grpo.core.rollout.sync.group import Meeting
from grpo.core.rollout.sync.payload import Adapter
from grpo.core.rollout.types import OnDone, PromptIds, Sampled, SamplingParams, refuse_unfit, runs
from grpo.core.text.randomness import preserved_randomness

ENVIRONMENT = {  # defaults that the user's own environment overrides
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine's core in this process, where tensors can be handed over
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # bound threads starve when other processes use the same cores
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}


@dataclass(frozen=True, slots=True)
class EngineSettings:
    model: str
    dtype: str  # of the weights; vLLM's own choice would turn float32 checkpoints into bfloat16
    context: int  # the longest prompt with its completion, in tokens
    raw_logprobs: bool  # report log softmax(logits) instead of that of what is left after temperature and filters
    memory_share: float  # of the GPU's memory, for weights and cache
    lora_rank: int | None = None  # the largest rank to serve, or None to serve no adapters
    lora_modules: tuple[str, ...] = ()  # last parts of the names of the adapted modules
    sleeps: bool = False  # the memory can be given up between rollouts (GPU only)
    tensor_parallel: int = 1  # devices that share each layer (`ShardedEngine`)


class VllmEngine(ServedEngine):
    """vLLM in this process, which no other process reaches; it lives as long as the run."""

    def __init__(self, settings: EngineSettings) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self._shares_group = torch.distributed.is_initialized()
        with preserved_randomness(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # vLLM's own deprecations are not the user's
            import vllm

            from grpo.core.rollout.sync import worker as sync_worker

            self._llm: Any = vllm.LLM(
                **engine_arguments(settings),
                weight_transfer_config={"backend": sync_worker.BACKEND},
                worker_extension_cls=f"{sync_worker.__name__}.{sync_worker.WorkerExtension.__name__}",
            )
        self._vllm = vllm
        self._settings = settings
        self._version = 0
        self._request: Any = None
        self._asleep = False
        self.context = settings.context
        self.block = int(self._llm.llm_engine.vllm_config.cache_config.block_size)
        self.lora = settings.lora_rank is not None

    def put_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        with preserved_randomness():
            self._call("grpo_load", weights)
        self._request = None

    def join(self, meeting: Meeting) -> None:
        self._call("init_weight_transfer_engine", init_info={"meeting": meeting.to_json()})

    def receive(self, announced: Iterable[Announced]) -> None:
        with preserved_randomness():
            self._call("grpo_begin")
            try:
                for tensor in announced:
                    info = {"name": tensor.name, "dtype": tensor.dtype, "shape": tensor.shape}
                    self._call("update_weights", update_info=info)
            finally:
                self._call("grpo_finish")
        self._request = None

    def put_adapter(self, adapter: Adapter) -> None:
        """Loads the adapter in memory under a new number."""
        from vllm.lora.request import LoRARequest

        self._version += 1
        self._call("grpo_put_adapter", self._version, adapter.rank, dict(adapter.tensors))
        self._request = LoRARequest(f"policy-{self._version}", self._version, "handed over in memory")

    def fingerprints(self, seed: int) -> Mapping[str, int]:
        served: Mapping[str, int] = self._call("grpo_fingerprints", seed)
        return served

    def adapter_fingerprints(self, adapter: Adapter, seed: int) -> Mapping[str, int]:
        if self._request is None:
            return {}
        served: Mapping[str, int] = self._call(
            "grpo_adapter_fingerprints", self._request.lora_int_id, seed, adapter.ranks
        )
        return served

    def reset_prefix_cache(self) -> None:
        self._llm.reset_prefix_cache()

    def generate(self, prompts: PromptIds, params: SamplingParams, on_done: OnDone | None = None) -> list[Sampled]:
        """Samples completions; equal neighbours become one request, so that its prompt is computed once."""
        if not prompts:
            return []
        refuse_unfit(prompts, params, self.context)
        unique, copies = runs(prompts)
        greedy = params.temperature == 0  # then the members of a group are one completion, and vLLM takes no others
        places = iter(range(len(prompts)))
        members = [[next(places) for _ in range(n)] for n in copies]
        seed = params.seeded()
        ready: dict[int, Sampled] = {}
        with preserved_randomness(seed), self._without_compiling():
            names = self._llm.enqueue(
                [{"prompt_token_ids": list(prompt)} for prompt in unique],
                [self._vllm.SamplingParams(**sampling_arguments(params, 1 if greedy else n)) for n in copies],
                use_tqdm=False,
                lora_request=self._request,
            )
            # Inside, vLLM adds a suffix to the name of a request.
            members_of = {name.partition("-")[0]: numbers for name, numbers in zip(names, members, strict=True)}
            while self._llm.llm_engine.has_unfinished_requests():
                for output in self._llm.llm_engine.step():
                    numbers = members_of[output.request_id]
                    done = [sampled_of(completion) for completion in output.outputs] * (len(numbers) if greedy else 1)
                    ready.update(zip(numbers, done, strict=True))
                    if on_done is not None:
                        on_done(numbers, done)
        return [ready[number] for number in range(len(prompts))]

    def wake(self) -> None:
        if self._asleep:
            self._llm.wake_up()
            self._asleep = False

    def sleep(self) -> None:
        if self._settings.sleeps and not self._asleep:
            self._llm.sleep(level=1)
            self._asleep = True

    def close(self) -> None:
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory, destroy_model_parallel

        if self._llm is not None:
            client, self._llm = self._llm.llm_engine.engine_core, None
            with preserved_randomness():
                if self._shares_group:
                    # vLLM's own shutdown would destroy torch's process group, which is the training's.
                    client._finalizer.detach()
                    client.engine_core.model_executor.shutdown()
                    client.engine_core.scheduler.shutdown()
                    gc.unfreeze()
                    destroy_model_parallel()
                else:
                    client.shutdown()
                    cleanup_dist_env_and_memory()
            del client
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def apply(self, function: Any) -> Any:
        """Calls a function with the engine's own model."""
        return self._llm.apply_model(function)[0]

    def _call(self, method: str, *arguments: Any, **named: Any) -> Any:
        return self._llm.collective_rpc(method, args=arguments, kwargs=named)[0]

    def _without_compiling(self) -> AbstractContextManager[Any]:
        """Switches the compiling of a small function of vLLM's sampler off: on a CPU it takes longer than it saves."""
        if torch.cuda.is_available():
            return nullcontext()
        stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
        return stance


def engine_arguments(settings: EngineSettings) -> dict[str, Any]:
    lora: dict[str, Any] = {}
    if settings.lora_rank is not None:
        lora = {
            "enable_lora": True,
            "max_loras": 1,
            "max_lora_rank": servable_rank(settings.lora_rank),
            # Without this the head is wrapped too, which crashes prompt log-probabilities on CPU.
            "lora_target_modules": list(settings.lora_modules),
        }
    return {
        "model": settings.model,
        "dtype": settings.dtype,
        "max_model_len": settings.context,
        "gpu_memory_utilization": settings.memory_share,
        "tensor_parallel_size": settings.tensor_parallel,
        "enable_prefix_caching": True,
        "enable_sleep_mode": settings.sleeps,
        "enforce_eager": not torch.cuda.is_available(),
        "logprobs_mode": "raw_logprobs" if settings.raw_logprobs else "processed_logprobs",
        "generation_config": "vllm",  # no sampling defaults of the model's own
        "skip_tokenizer_init": True,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        **({"distributed_executor_backend": "external_launcher"} if torch.distributed.is_initialized() else {}),
        **lora,
    }


def servable_rank(rank: int) -> int:
    """Returns the smallest rank that vLLM has kernels for and that holds `rank`."""
    return next((size for size in (8, 16, 32, 64, 128, 256, 320, 512) if size >= rank), rank)


def sampling_arguments(params: SamplingParams, copies: int) -> dict[str, Any]:
    """Translates sampling parameters into vLLM's; only our end tokens end a completion."""
    return {
        "n": copies,
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "min_p": params.min_p,
        "logprobs": params.most_probable,  # beside that of the sampled token
        "stop_token_ids": list(params.eos_ids),
        "ignore_eos": True,
        "detokenize": False,
    }


def sampled_of(completion: Any) -> Sampled:
    ids = tuple(completion.token_ids)
    logprobs = tuple(step[token].logprob for step, token in zip(completion.logprobs, ids, strict=True))
    reason: Literal["stop", "length"] = "stop" if completion.finish_reason == "stop" else "length"
    if all(len(step) == 1 for step in completion.logprobs):
        return Sampled(ids, logprobs, reason)
    others = tuple(
        tuple((token, candidate.logprob) for token, candidate in step.items()) for step in completion.logprobs
    )
    return Sampled(ids, logprobs, reason, others)


class ShardedEngine(VllmEngine):
    """A `VllmEngine` on several devices (tensor parallel); weights are sent one by one, since a stream cannot be."""

    def put_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Loads weights one by one; a broken stream leaves an engine that can be loaded again."""
        with preserved_randomness():
            self._call("grpo_begin")
            try:
                for name, tensor in weights:
                    self._call("grpo_receive", name, tensor.detach().to("cpu"))
            finally:
                self._call("grpo_finish")
        self._request = None

    def generate(self, prompts: PromptIds, params: SamplingParams, on_done: OnDone | None = None) -> list[Sampled]:
        """Samples completions; this process's seed becomes that of every rank."""
        self._call("grpo_seed", params.seeded())
        return super().generate(prompts, params, on_done)
