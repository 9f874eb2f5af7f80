"""Moves what autograd saves in a forward pass to host memory, and back in the backward pass.

Theory of operation. On CUDA each large tensor is copied to a pinned host buffer on a stream of its own while the next
layer computes, and fetched while the layer after it computes backward. Three rules keep the streams apart: the copy
stream waits for the compute stream before it reads or writes, the compute stream waits for the copy before it uses the
result, and every tensor that the other stream touches is recorded there, so that the allocator does not reuse it early.
Host buffers are reused by the next forward pass. On CPU the copies are plain.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

SMALLEST = 2**20  # bytes; below this a copy costs more than it frees


@dataclass(slots=True)
class _Saved:
    host: torch.Tensor
    device: torch.device
    copied: Any = None
    back: torch.Tensor | None = None
    fetched: Any = None


class Offload:
    """Keeps the tensors of one forward pass at a time; those under `smallest` bytes stay where they are."""

    def __init__(self, smallest: int = SMALLEST) -> None:
        self.smallest = smallest
        self.bytes = 0  # that the last forward pass sent to the host
        self._saved: list[_Saved] = []
        self._buffers: dict[tuple[torch.Size, torch.dtype], list[torch.Tensor]] = {}
        self._stream: Any = None

    @contextmanager
    def offloaded(self, kept: set[int]) -> Iterator[None]:
        """Offloads what autograd saves inside, except storages at the addresses `kept`, such as parameters."""
        self.bytes = 0
        last = {(saved.host.shape, saved.host.dtype) for saved in self._saved}
        self._buffers = {kind: pool for kind, pool in self._buffers.items() if kind in last}
        self._saved.clear()

        def pack(tensor: torch.Tensor) -> Any:
            if (
                tensor.nbytes < self.smallest
                or not tensor.is_floating_point()
                or not tensor.is_contiguous()
                or tensor.untyped_storage().data_ptr() in kept
            ):
                return tensor
            return self._send(tensor)

        def unpack(saved: Any) -> torch.Tensor:
            return self._fetch(saved) if isinstance(saved, int) else saved

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            yield

    def _send(self, tensor: torch.Tensor) -> int:
        host = self._buffer(tensor)
        saved = _Saved(host, tensor.device)
        if tensor.is_cuda:
            stream = self._copies()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                host.copy_(tensor, non_blocking=True)
                saved.copied = stream.record_event()
            tensor.record_stream(stream)
        else:
            host.copy_(tensor)
        self.bytes += tensor.nbytes
        self._saved.append(saved)
        return len(self._saved) - 1

    def _fetch(self, number: int) -> torch.Tensor:
        saved = self._saved[number]
        if saved.device.type != "cuda":
            return saved.host.clone()
        back = self._begin(saved)
        torch.cuda.current_stream().wait_event(saved.fetched)
        if number:
            self._begin(self._saved[number - 1])  # the layer before will ask for it next
        saved.back = None
        return back

    def _begin(self, saved: _Saved) -> torch.Tensor:
        if saved.back is None:
            stream = self._copies()
            back = torch.empty_like(saved.host, device=saved.device, pin_memory=False)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                back.copy_(saved.host, non_blocking=True)
                saved.fetched = stream.record_event()
            back.record_stream(stream)
            saved.back = back
        return saved.back

    def _buffer(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a host buffer of the shape: the n-th of its kind in every forward pass is the same one."""
        kind = (tensor.shape, tensor.dtype)
        used = sum((saved.host.shape, saved.host.dtype) == kind for saved in self._saved)
        pool = self._buffers.setdefault(kind, [])
        if used == len(pool):
            pool.append(torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=tensor.is_cuda))
        return pool[used]

    def _copies(self) -> Any:
        if self._stream is None:
            self._stream = torch.cuda.Stream()
        return self._stream
