"""Tensors on their way to a rollout server: named tensors in, frames of bytes out, and back; one tensor at a time.

A frame is eight bytes of length and a safetensors file that holds one tensor under its name. A frame of length 0 ends
the stream, so a connection that breaks off is never taken for the end. Nothing is pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

LENGTH_BYTES = 8
LARGEST = 2**36  # bytes of one tensor: more than any layer has


class Readable(Protocol):
    """Bytes in their order."""

    def read(self, size: int, /) -> bytes:
        """Returns up to `size` bytes, and none at the end."""
        ...


def frames(tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[bytes]:
    """Yields the bytes of named tensors, copied to the host one at a time."""
    for name, tensor in tensors:
        blob = save({name: tensor.detach().to("cpu").contiguous()})
        yield len(blob).to_bytes(LENGTH_BYTES, "big")
        yield blob
    yield (0).to_bytes(LENGTH_BYTES, "big")


class Unframed:
    """Iterates over the named tensors [on the CPU] of a stream of frames.

    Args:
        source: where the frames come from.
    """

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._ended = False

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields the tensors that are left.

        Raises:
            ConnectionError: the stream broke off, or is none of frames.
        """
        while blob := self._frame():
            try:
                yield from load(blob).items()
            except SafetensorError as error:
                raise ConnectionError(f"a tensor arrived broken: {error}") from None

    def drain(self) -> None:
        """Reads what is left and forgets it, so that the sender comes to read the answer."""
        while not self._ended:
            self._frame()

    def _frame(self) -> bytes:
        if self._ended:
            return b""
        self._ended = True  # unless all goes well: after an error there is nothing to read any more
        length = int.from_bytes(exactly(self._source.read, LENGTH_BYTES), "big")
        if length > LARGEST:
            raise ConnectionError(f"a tensor of {length} bytes was announced: this is no stream of weights")
        blob = exactly(self._source.read, length)
        self._ended = length == 0
        return blob


class Chunked:
    """The body of an HTTP request that came in chunks (RFC 9112, section 7.1).

    Args:
        source: the connection, behind the request's headers.
    """

    def __init__(self, source: Readable, readline: Callable[[int], bytes]) -> None:
        self._source = source
        self._readline = readline
        self._left = 0
        self._ended = False

    def read(self, size: int, /) -> bytes:
        """Returns up to `size` bytes, and none at the end.

        Raises:
            ConnectionError: the connection broke off, or these are no chunks.
        """
        if self._left == 0 and not self._ended and size:
            self._left = self._next_length()
            self._ended = self._left == 0
        found = self._source.read(min(size, self._left))
        self._left -= len(found)
        if self._left == 0 and not self._ended and found:
            self._readline(8)  # the end of the line that ends a chunk
        return found

    def _next_length(self) -> int:
        line = self._readline(64).split(b";")[0].strip()
        try:
            length = int(line, 16)
        except ValueError:
            raise ConnectionError("the request broke off") from None
        if length == 0:
            while self._readline(1024).strip():  # trailers
                continue
        return length


def exactly(read: Callable[[int], bytes], size: int) -> bytes:
    """Reads so many bytes.

    Raises:
        ConnectionError: there are fewer.
    """
    parts: list[bytes] = []
    left = size
    while left:
        part = read(left)
        if not part:
            raise ConnectionError("the stream broke off")
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
