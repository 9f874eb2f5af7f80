"""Defines the protocol of rollout server and client: headers, sizes, completions as JSON, tensors as frames.

A frame is eight bytes of length, eight of the XXH3 digest of what follows, and a safetensors file with one tensor, or
what changed in one (positions and new values), or the notice that a tensor is the same; its metadata say which. A frame
of length 0 ends the stream, so a broken connection is never taken for the end, and a flipped bit never for a weight.
Nothing is pickled.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
import xxhash
from safetensors import SafetensorError
from safetensors.torch import load, save

from grpo.core.http.limits import Limits
from grpo.core.rollout.sync.changes import FORMS, Changes
from grpo.core.rollout.sync.delta import Again, Announced, Changed, Item, Same, Whole
from grpo.core.rollout.types import Sampled

NUMBER_BYTES = 8  # of a length or a digest
LARGEST = 2**36  # bytes of one tensor: more than any layer has
PIECE = 2**20  # bytes that are read at once
BYTES = "application/octet-stream"  # no web page can send it to another site without asking first
INCARNATION = "Grpo-Incarnation"  # the header that names the start of a server whose weights the caller means
HANDED = "Grpo-Handed"  # the header that names the handing over that the caller means
KEEP = "Grpo-Keep"  # the header that asks for a copy of the weights, to be changed by the next ones
RANK = "Grpo-Rank"  # the header that names the rank of an adapter
CLAIM = "/claim"
SILENCE = 60.0  # seconds without a byte after which either side gives the other up
SMALL = 2**16  # bytes of a body that names a few things
LARGEST_BODY = {  # bytes by path; None: frames of tensors, which are read while the engine takes them
    "/claim": SMALL,
    "/join": SMALL,
    "/generate": 2**28,
    "/fingerprints": SMALL,
    "/adapter_fingerprints": SMALL,
    "/reset_prefix_cache": SMALL,
    "/weights": None,
    "/announced": None,
    "/adapter": None,
}
LIMITS = Limits(body_bytes=SMALL, body_bytes_of=LARGEST_BODY, silence=SILENCE)


def sampled_to_json(sampled: Sampled) -> list[Any]:
    return [sampled.token_ids, sampled.logprobs, sampled.finish_reason, sampled.most_probable]


def sampled_from_json(values: Sequence[Any]) -> Sampled:
    ids, logprobs, reason, others = values
    others = tuple(tuple((token, logprob) for token, logprob in step) for step in others)
    return Sampled(tuple(ids), tuple(logprobs), reason, others)


class Readable(Protocol):
    """Bytes in their order."""

    def read(self, size: int, /) -> bytes:
        """Returns up to `size` bytes, and none at the end."""


def frames(items: Iterable[Item | Announced], *, end: bool = True) -> Iterator[bytes]:
    for item in items:
        blob = _packed(item)
        yield len(blob).to_bytes(NUMBER_BYTES, "big") + xxhash.xxh3_64_digest(blob)
        yield blob
    if end:
        yield (0).to_bytes(NUMBER_BYTES, "big")


class Unframed:
    """Iterates over the items [tensors on the CPU] of a stream of frames. `largest`: the most bytes of a frame."""

    def __init__(self, source: Readable, largest: int = LARGEST) -> None:
        self._source = source
        self._largest = largest
        self._ended = False

    def __iter__(self) -> Iterator[Item]:
        """Yields the items that are left. Raises ConnectionError for a broken stream."""
        for item in self._all():
            if isinstance(item, Announced):
                raise ConnectionError(f"{item.name} was announced, and no group was joined")
            yield item

    def announced(self) -> Iterator[Announced]:
        """Yields the announcements that are left. Raises ConnectionError."""
        for item in self._all():
            if not isinstance(item, Announced):
                raise ConnectionError(f"{item.name} arrived among announcements")
            yield item

    def drain(self) -> None:
        """Reads what is left and forgets it, so that the sender comes to read the answer."""
        while not self._ended:
            self._frame()

    def _all(self) -> Iterator[Item | Announced]:
        while blob := self._frame():
            try:
                item = _unpacked(blob)
            except (SafetensorError, KeyError, ValueError) as error:
                self._ended = True
                raise ConnectionError(f"a tensor arrived broken: {error}") from None
            yield item

    def _frame(self) -> bytes:
        if self._ended:
            return b""
        self._ended = True  # unless all goes well: after an error there is nothing to read any more
        length = int.from_bytes(exactly(self._source.read, NUMBER_BYTES), "big")
        if length == 0:
            return b""
        if length > self._largest:
            raise ConnectionError(f"a tensor of {length} bytes was announced: this is not a stream of weights")
        digest = exactly(self._source.read, NUMBER_BYTES)
        blob = exactly(self._source.read, length)
        if xxhash.xxh3_64_digest(blob) != digest:
            raise ConnectionError("a tensor arrived with other bits than it was sent with")
        self._ended = False
        return blob


def _packed(item: Item | Announced) -> bytes:
    notes = {"name": item.name, "kind": type(item).__name__}
    if isinstance(item, Announced):
        notes |= {"dtype": str(item.dtype).removeprefix("torch."), "shape": json.dumps(item.shape)}
        return save({}, metadata=notes)
    notes["digest"] = item.digest
    tensors: dict[str, torch.Tensor] = {}
    if isinstance(item, Whole):
        tensors = {item.name: item.tensor}
    elif isinstance(item, Changed):
        changes = item.changes
        notes |= {"before": item.before, "form": changes.form}
        tensors = {"positions": torch.from_numpy(changes.positions), "values": changes.values}
    return save(tensors, metadata=notes)


def _unpacked(blob: bytes) -> Item | Announced:
    tensors = load(blob)  # looks at the header before anything else does
    notes: Mapping[str, str] = json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])["__metadata__"]
    name, kind = notes["name"], notes["kind"]
    if kind == Announced.__name__:
        return _announced(name, notes["dtype"], json.loads(notes["shape"]))
    digest = notes["digest"]
    if kind == Whole.__name__:
        return Whole(name, digest, tensors[name])
    form = next((form for form in FORMS if form == notes.get("form")), None)
    if kind == Changed.__name__ and form is not None:
        positions = tensors["positions"]
        if positions.dtype != torch.uint8 or positions.ndim != 1:
            raise ValueError(f"positions as {positions.dtype}")
        changes = Changes(form, positions.numpy(), tensors["values"])
        return Changed(name, digest, notes["before"], changes)
    if kind == Same.__name__:
        return Same(name, digest)
    if kind == Again.__name__:
        return Again(name, digest)
    raise ValueError(f"{kind} is not a kind of item")


def _announced(name: str, dtype: str, shape: list[int]) -> Announced:
    kind = getattr(torch, dtype, None)
    fits = all(isinstance(size, int) and size >= 0 for size in shape)
    if not isinstance(kind, torch.dtype) or not fits or math.prod(shape) * kind.itemsize > LARGEST:
        raise ValueError(f"{name} as {dtype} {shape}")
    return Announced(name, kind, tuple(shape))


def exactly(read: Callable[[int], bytes], size: int) -> bytes:
    """Reads `size` bytes, and takes memory for them as they arrive. Raises ConnectionError if there are fewer."""
    parts: list[bytes] = []
    left = size
    while left:
        part = read(min(left, PIECE))
        if not part:
            raise ConnectionError("the stream broke off")
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
