"""Declares what the verification of a sync needs from an engine, in this process or behind a server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch

from grpo.core.rollout.sync.delta import Announced
from grpo.core.rollout.sync.group import Meeting
from grpo.core.rollout.sync.payload import Adapter
from grpo.core.rollout.types import OnDone, PromptIds, Sampled, SamplingParams


class EngineLink(Protocol):
    """One engine; by default it has no memory to release and keeps nothing."""

    context: int  # the longest prompt with its completion, in tokens
    block: int  # tokens in one block of the engine's prefix cache
    lora: bool

    def epoch(self) -> int:
        """Returns a number that changes when the engine was restarted and holds the weights of its file again."""
        return 0

    def put_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> int | None:
        """Replaces the weights one by one; serves no adapter then. Returns the bytes that travelled, or None."""

    def forget(self) -> None:
        """Takes earlier weights to be lost: the next are sent in full."""
        return

    def put_adapter(self, adapter: Adapter) -> None:
        """Replaces the adapter; from then on it is served."""

    def fingerprints(self, seed: int) -> Mapping[str, int]:
        """Returns checkpoint name to fingerprint of every weight that the engine computes with."""

    def adapter_fingerprints(self, adapter: Adapter, seed: int) -> Mapping[str, int]:
        """Returns the fingerprints of the adapter that is served, under the names of `adapter`."""

    def reset_prefix_cache(self) -> None:
        """Forgets everything that was computed with earlier weights."""

    def generate(self, prompts: PromptIds, params: SamplingParams, on_done: OnDone | None = None) -> list[Sampled]:
        """Samples one completion for each prompt, and reports each as it ends, in any order."""

    def wake(self) -> None:
        """Takes back the memory that `sleep` released."""
        return

    def sleep(self) -> None:
        """Releases the memory of weights and cache, where the device can."""
        return

    def close(self) -> None:
        """Stops the engine, or leaves the server."""
        return

    def handed(self) -> Mapping[str, Any]:
        """Returns what another process has to name to sample with the latest weights; empty: none can."""
        return {}


class GuestLink(EngineLink, Protocol):
    """An engine that another process syncs; this one samples only."""

    def follow(self, handed: Sequence[Mapping[str, Any]]) -> None:
        """Samples from now on with the weights of the latest sync, which one of these names."""


class ServedEngine(EngineLink, Protocol):
    """An engine behind a server, which can also take weights from a group that it joined with the trainer."""

    def join(self, meeting: Meeting) -> None:
        """Joins, and leaves the group before."""

    def receive(self, announced: Iterable[Announced]) -> None:
        """Replaces the weights by what the first member of the group sends, each after its announcement."""
