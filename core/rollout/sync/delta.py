"""Sends only changed weights to a remote engine, which restores the whole tensors.

Theory of operation. Weights are known by the digest of their bits, type and shape, not by a step. The sender has a copy
of the weights that went out last and records each engine's digests; the receiver has a copy of what arrived. Changes
name the digests before and after, and the receiver checks both, so they are only ever applied to the right weights; in
doubt a tensor travels whole.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
import xxhash

from grpo.core.rollout.sync.changes import Changes, applied, changes_between


@dataclass(frozen=True, slots=True)
class Whole:
    """A tensor, on the CPU and contiguous, with its digest."""

    name: str
    digest: str
    tensor: torch.Tensor


@dataclass(frozen=True, slots=True)
class Changed:
    """The changes from the tensor of one digest to that of another."""

    name: str
    digest: str
    before: str
    changes: Changes


@dataclass(frozen=True, slots=True)
class Same:
    """The tensor that is there has this digest."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class Again:
    """The tensor of the item before, under another name."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class Announced:
    """A tensor that comes by another way (core/rollout/sync/group.py), right after this."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


Item = Whole | Changed | Same | Again


@dataclass(slots=True)
class _Entry:
    digest: str
    tensor: torch.Tensor
    before: str = ""  # digest of the one before
    changes: Changes | None = None  # from that one, where they are smaller


class LastWeights:
    """One copy of the weights as they went out last, for all engines and threads, with what changed before."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()

    def changes(self, whole: Whole, since: str) -> Changes | None:
        """Returns what makes a tensor of the one with the digest `since`, or None where it should travel whole."""
        with self._lock:
            entry = self._entries.get(whole.name)
            kind = whole.tensor.dtype, whole.tensor.shape
            if entry is None or (entry.tensor.dtype, entry.tensor.shape) != kind:
                self._entries[whole.name] = _Entry(whole.digest, whole.tensor.clone())
                return None
            if entry.digest != whole.digest:
                entry.changes = changes_between(entry.tensor, whole.tensor)
                entry.before, entry.digest = entry.digest, whole.digest
                entry.tensor.copy_(whole.tensor)
            return entry.changes if entry.before == since else None


class Sender:
    """What one engine is sent. `last`: the weights that went out last; None: send every tensor whole."""

    def __init__(self, last: LastWeights | None) -> None:
        self._last = last
        self._holds: dict[str, str] = {}  # name to digest, of what the engine was proven to have
        self._sent: dict[str, str] = {}

    @property
    def keeps(self) -> bool:
        """Whether the other side shall keep what arrives, for changes to be made of it."""
        return self._last is not None

    def items(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[Item]:
        """Yields what has to travel; until `arrived`, the engine's weights are uncertain."""
        holds, self._holds, self._sent = self._holds, {}, {}
        previous = ""
        for name, tensor in weights:
            whole = whole_of(name, tensor)
            self._sent[name] = whole.digest
            if whole.digest == previous:
                yield Again(name, whole.digest)
            elif self._last is None:
                yield whole
            else:
                yield _least(whole, holds.get(name, ""), self._last)
            previous = whole.digest

    def arrived(self) -> None:
        """Notes that the engine took everything."""
        self._holds = self._sent

    def forget(self) -> None:
        """Takes it that the engine lost everything."""
        self._holds = {}


class HeldWeights:
    """The whole weights on the receiver's side."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, torch.Tensor]] = {}

    def taken(self, items: Iterable[Item], *, keep: bool) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields named whole tensors, read-only; `keep`: for later changes. Raises ConnectionError: wrong digests."""
        before, self._held = self._held, {}
        last: tuple[str, torch.Tensor] | None = None
        for item in items:
            last = self._one(item, before.pop(item.name, None), last)
            if keep:
                self._held[item.name] = last
            yield item.name, last[1]

    def _one(
        self, item: Item, held: tuple[str, torch.Tensor] | None, last: tuple[str, torch.Tensor] | None
    ) -> tuple[str, torch.Tensor]:
        if isinstance(item, Whole):
            return item.digest, item.tensor
        if isinstance(item, Again):
            held = last
        wanted = item.before if isinstance(item, Changed) else item.digest
        if held is None or held[0] != wanted:
            raise ConnectionError(f"{item.name} arrived as what changed in weights that are not held here")
        if not isinstance(item, Changed):
            return held
        try:
            tensor = applied(held[1], item.changes)
        except ValueError as error:
            raise ConnectionError(f"what changed in {item.name} arrived broken: {error}") from None
        if digest_of(tensor) != item.digest:
            raise ConnectionError(f"what changed in {item.name} does not lead to the weights that were announced")
        return item.digest, tensor


def whole_of(name: str, tensor: torch.Tensor) -> Whole:
    """Returns a tensor as an item, copied to the host where it is elsewhere or in another order."""
    plain = tensor.detach().to("cpu").contiguous()
    return Whole(name, digest_of(plain), plain)


def digest_of(tensor: torch.Tensor) -> str:
    """Returns the XXH3 digest, in hexadecimal, of a contiguous tensor's bits, type and shape."""
    digest = xxhash.xxh3_128(f"{tensor.dtype} {list(tensor.shape)}".encode())
    digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _least(whole: Whole, held: str, last: LastWeights) -> Item:
    changes = last.changes(whole, held)
    if held == whole.digest:
        return Same(whole.name, whole.digest)
    return whole if changes is None else Changed(whole.name, whole.digest, held, changes)
