"""Sends whole tensors from the trainer to the engines by a collective: NCCL between GPUs, gloo elsewhere.

Theory of operation. The trainer, member 0, opens a `Meeting` on the address by which the server is reached, and sends
its key by the authenticated wire; the engine's workers are the other members. Without the key nothing is found under
its port. Name, type and shape go by the same wire, so the group carries nothing but bits. No member waits longer than
`SECONDS`. After any failure another group is made.
"""

from __future__ import annotations

import math
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
from torch import distributed

SECONDS = 60.0  # to meet, and for each tensor
Backend = Literal["nccl", "gloo"]
dist: Any = distributed  # its stores and groups are exported without types


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the members of a group find each other."""

    host: str
    port: int
    key: str
    size: int
    backend: Backend

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> Meeting:
        """Reads what `to_json` wrote. Raises ValueError."""
        try:
            meeting = cls(str(tree["host"]), int(tree["port"]), str(tree["key"]), int(tree["size"]), tree["backend"])
        except KeyError as error:
            raise ValueError(f"a meeting without {error}") from None
        if meeting.backend not in ("nccl", "gloo") or meeting.size < 2:
            raise ValueError(f"no meeting: {tree}")
        return meeting


class OpenMeeting:
    """A meeting of this process, which listens at `host` from now on."""

    def __init__(self, host: str, size: int, backend: Backend) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, 0), family=family)
        self.meeting = Meeting(host, listening.getsockname()[1], secrets.token_hex(16), size, backend)
        self._store = _store(self.meeting, listening)

    def join(self) -> TransferGroup:
        """Waits for all the others. Raises RuntimeError if they did not come in time."""
        return TransferGroup(self.meeting, 0, self._store)


class TransferGroup:
    """A member of a group. Raises RuntimeError if the others did not come in time.

    `rank`: number of this member; 0 sends. `store`: of the one who opened the meeting; None: reached by the network.
    """

    def __init__(self, meeting: Meeting, rank: int, store: Any = None) -> None:
        self._store = _store(meeting) if store is None else store
        place = dist.PrefixStore(meeting.key, self._store)
        self._group: Any
        if meeting.backend == "nccl":
            self._device = torch.device("cuda", torch.cuda.current_device())
            nccl: Any = dist.ProcessGroupNCCL  # in builds with CUDA
            choices = nccl.Options()
            choices._timeout = timedelta(seconds=SECONDS)
            self._group = nccl(place, rank, meeting.size, choices)
        else:
            self._device = torch.device("cpu")
            gloo: Any = dist.ProcessGroupGloo
            options = gloo._Options()
            options._timeout = timedelta(seconds=SECONDS)
            # By default gloo listens on what the machine's name resolves to, which others may not reach.
            here = meeting.host if rank == 0 else own_address(meeting.host, meeting.port)
            options._devices = [gloo.create_device(hostname=here)]
            self._group = gloo(place, rank, meeting.size, options)

    def send(self, tensor: torch.Tensor) -> None:
        """Sends a tensor to all the others. Raises RuntimeError if one is gone."""
        bits = tensor.detach().to(self._device).contiguous().reshape(-1).view(torch.uint8)
        if bits.numel():
            self._group.broadcast(bits, 0).wait()

    def receive(self, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
        """Returns the tensor that the first member sends. Raises RuntimeError if it is gone."""
        bits = torch.empty(math.prod(shape) * dtype.itemsize, dtype=torch.uint8, device=self._device)
        if bits.numel():
            self._group.broadcast(bits, 0).wait()
        return bits.view(dtype).reshape(tuple(shape))

    def close(self) -> None:
        """Leaves the group, which ends it for all."""
        if self._device.type == "cuda":
            self._group.abort()
        self._group = None


def own_address(host: str, port: int) -> str:
    """Returns the address of this machine by which it reaches another."""
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
        with socket.socket(family, kind, protocol) as probe:  # a datagram's connect sends nothing
            probe.connect(address)
            return str(probe.getsockname()[0])
    raise OSError(f"{host} has no address")


def _store(meeting: Meeting, listening: socket.socket | None = None) -> Any:
    return dist.TCPStore(
        meeting.host,
        meeting.port,
        is_master=listening is not None,
        timeout=timedelta(seconds=SECONDS),
        wait_for_workers=False,
        master_listen_fd=None if listening is None else listening.detach(),
    )
