"""Runs vLLM on several devices, with a process for each (tensor parallel).

A stream of weights cannot go to other processes, so they are sent one by one within a session, whole, and each rank
keeps its part. Fingerprints are of the whole, put together by the ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from grpo.core.rollout.engine.vllm import VllmEngine
from grpo.core.rollout.types import OnDone, Sampled, SamplingParams
from grpo.core.text.randomness import preserved_randomness


class ShardedEngine(VllmEngine):
    """A `VllmEngine` whose workers are processes of their own."""

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

    def generate(
        self, prompts: Sequence[Sequence[int]], params: SamplingParams, on_done: OnDone | None = None
    ) -> list[Sampled]:
        """Samples completions; this process's seed becomes that of every rank."""
        self._call("grpo_seed", params.seeded())
        return super().generate(prompts, params, on_done)
