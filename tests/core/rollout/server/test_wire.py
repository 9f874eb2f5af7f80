"""Tensors as frames: what comes out is what went in, and a stream that broke off is never the end."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

from grpo.core.rollout.server.wire import NUMBER_BYTES, Unframed, frames
from grpo.core.rollout.sync.delta import Whole, whole_of

TENSORS = {
    "matrix": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "half": torch.tensor([1.5, -2.25], dtype=torch.bfloat16),
    "turned": torch.arange(6.0).reshape(2, 3).T,
    "scalar": torch.tensor(3.0),
    "empty": torch.empty(0, 4),
}


def whole() -> bytes:
    return b"".join(frames(whole_of(name, tensor) for name, tensor in TENSORS.items()))


def read(source: Any) -> dict[str, torch.Tensor]:
    return {item.name: item.tensor for item in Unframed(source) if isinstance(item, Whole)}


def test_tensors_come_out_as_they_went_in() -> None:
    found = read(io.BytesIO(whole()))
    assert list(found) == list(TENSORS)
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_a_stream_that_broke_off_is_an_error(kept: int) -> None:
    with pytest.raises(ConnectionError, match="broke off"):
        list(Unframed(io.BytesIO(whole()[:kept])))


def test_a_flipped_bit_of_a_tensor_is_an_error() -> None:
    data = bytearray(b"".join(frames([whole_of("matrix", TENSORS["matrix"])])))
    data[-NUMBER_BYTES - 1] ^= 1  # of the last number, before the frame that ends the stream
    with pytest.raises(ConnectionError, match="other bits than it was sent with"):
        list(Unframed(io.BytesIO(data)))


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", bytes([0] * 7 + [9]) + b"no tensor", b"\xff" * 40])
def test_what_is_no_tensor_is_an_error(data: bytes) -> None:
    with pytest.raises(ConnectionError):
        list(Unframed(io.BytesIO(data)))


def test_what_is_left_can_be_read_and_forgotten() -> None:
    source = io.BytesIO(whole() + b"behind")
    stream = Unframed(source)
    next(iter(stream))
    stream.drain()
    stream.drain()
    assert source.read() == b"behind"


def test_a_frame_that_is_larger_than_any_tensor_of_the_run_is_refused_before_it_is_read() -> None:
    data = whole()
    length = int.from_bytes(data[:8], "big")
    assert [item.name for item in Unframed(io.BytesIO(data), length)]
    with pytest.raises(ConnectionError, match=f"a tensor of {length} bytes was announced"):
        list(Unframed(io.BytesIO(data[:8]), length - 1))
