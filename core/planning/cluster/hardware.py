"""Lists published figures of GPUs and the wires between them.

The figures are those of the makers' data sheets: dense products in bfloat16 with sums in float32, the memory's
bandwidth, the bandwidth of NVLink or PCIe in one direction, and the network that machines with such a GPU are usually
sold with, for each GPU. What of them a real program reaches is in `Share`.
"""

from __future__ import annotations

from dataclasses import dataclass

from grpo.core.planning.memory.budget import GIB, Device, gpu_memory
from grpo.plugins.errors import UsageError, did_you_mean

GIGA, TERA = 1e9, 1e12


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of GPU."""

    name: str
    memory: int  # bytes
    products: float  # floating-point operations a second, bfloat16, dense
    bandwidth: float  # bytes a second of its memory
    link: float  # bytes a second to another GPU of the machine, one direction
    network: float  # bytes a second to another machine, one direction, its share of the machine's

    @property
    def device(self) -> Device:
        """Its memory, for the calculation of what fits."""
        return Device("cuda", self.memory)


@dataclass(frozen=True, slots=True)
class Share:
    """What programs reach of published figures, and what they add: assumptions, not measurements."""

    training: float = 0.4  # of the products, in an update
    prefill: float = 0.5  # of the products, while prompts are read
    decoding: float = 0.6  # of the memory's bandwidth, while tokens are sampled
    wire: float = 0.7  # of a link's or a network's bandwidth
    round: float = 2e-3  # seconds that an engine needs for a round of decoding beside what the GPU computes
    exchange: float = 1e-5  # seconds until GPUs that share a layer have begun to exchange


def _gpu(name: str, gigabytes: int, tflops: float, bandwidth: float, link: float, network: float) -> Gpu:
    return Gpu(name, gigabytes * GIB, tflops * TERA, bandwidth * GIGA, link * GIGA, network * GIGA)


KNOWN = (
    _gpu("B200", 180, 2250, 8000, 900, 50),
    _gpu("H200", 141, 989, 4800, 450, 50),
    _gpu("H100", 80, 989, 3350, 450, 50),
    _gpu("A100", 80, 312, 2039, 300, 25),
    _gpu("A100-40", 40, 312, 1555, 300, 25),
    _gpu("L40S", 48, 362, 864, 32, 12.5),
    _gpu("L4", 24, 121, 300, 32, 3),
    _gpu("RTX5090", 32, 209, 1792, 64, 1.25),
    _gpu("RTX4090", 24, 165, 1008, 32, 1.25),
    _gpu("RTX3090", 24, 71, 936, 32, 1.25),
)


def known_gpu(name: str) -> Gpu | None:
    """Returns the GPU of a name such as `H100`, `rtx 4090` or `A100-40`, or None."""
    plain = "".join(name.split()).lower()
    return next((gpu for gpu in KNOWN if gpu.name.lower() == plain), None)


def device_of(text: str) -> Device:
    """Returns the memory of a GPU that goes by its name, or by how much it has. Raises UsageError: it is neither."""
    known = known_gpu(text)
    if known is not None:
        return known.device
    try:
        return Device("cuda", gpu_memory(text))
    except UsageError as error:
        raise UsageError(f"{error}{did_you_mean(text, [gpu.name for gpu in KNOWN])}") from None


def gpu_of(name: str | None) -> Gpu:
    """Returns the GPU of a name; without one, the GPU of this machine. Raises UsageError."""
    names = [gpu.name for gpu in KNOWN]
    if name is None:
        import torch

        here = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
        known = next((gpu for gpu in KNOWN if gpu.name.lower() in "".join(here.split()).lower()), None)
        if known is None:
            what = f"the GPU of this machine ({here}) is not among those" if here else "there is no GPU here"
            raise UsageError(f"{what}; --nodes calculates with a named GPU: --gpu with one of {', '.join(names)}.")
        return known
    known = known_gpu(name)
    if known is None:
        raise UsageError(
            f"no figures of a GPU '{name}'.{did_you_mean(name, names)} --nodes calculates with one of "
            f"{', '.join(names)}."
        )
    return known
