"""Estimates the seconds and bytes of one step on many GPUs, from published figures.

The figures are those of the makers' data sheets: dense bfloat16 products with float32 sums, the memory's bandwidth, the
bandwidth of NVLink or PCIe in one direction, and the usual network of such machines, for each GPU. What a real program
reaches of them is assumed (`Share`); nothing is measured. With P parameters of b bytes, c completions of T sampled
tokens after a prompt of Q, N GPUs that sample with t of them sharing a layer, and n that train:

- reading prompts: 2 P Q operations for each prompt (its group shares them), over all GPUs that sample
- sampling: T rounds, each of which reads P b / t bytes of weights and the keys and values of the sequences that an
  engine holds at that time (half of their completion on average), or does 2 P operations for each of them, whichever
  takes longer, and a fixed time beside it; sequences that do not fit into the cache wait for a next wave
- update: 6 P operations a token (4 P where only an adapter trains), 2 P more where activations are computed again,
  and the products of attention, 2 h l (Q + T) for each of these 2 P
- gradients and shards between the GPUs that train: 2 (n - 1) / n times the gradients where the policy is whole on each
  (DDP), 3 (n - 1) / n times the weights for each micro batch where it is sharded (ZeRO-3, FSDP); it runs beside the
  update, so the longer of the two counts
- weights to the engines: all of them, what changed, or the adapter: inside one GPU's memory where it trains the whole
  policy and samples, else over its wire
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from grpo.core.planning.memory.budget import GIB, Device, gpu_memory
from grpo.core.planning.memory.estimate import Shape
from grpo.core.planning.memory.sharded import SHARDINGS, Shared, Spread, held, peak
from grpo.plugins.errors import UsageError, did_you_mean

CHANGED = 0.05  # of the bytes of all weights, what a step at 1e-6 in bfloat16 sends; see docs/scale.md
SPARE = 0.9  # of a GPU's memory, what an engine may fill
GIGA, TERA = 1e9, 1e12


@dataclass(frozen=True, slots=True)
class Gpu:
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
    """Returns the GPU of a name such as `H100`, `rtx 4090` or `NVIDIA A100-SXM4-40GB`, or None."""
    words = re.findall(r"[a-z0-9]+", name.lower().replace("rtx ", "rtx").replace("rtx-", "rtx"))
    sizes = [int(match[1]) * GIB for word in words if (match := re.fullmatch(r"(\d+)(?:gi?b?)?", word))]
    alike = (gpu for gpu in KNOWN if gpu.name.lower().partition("-")[0] in words)
    return next((gpu for gpu in alike if not sizes or gpu.memory in sizes), None)


def device_of(text: str) -> Device:
    """Returns the memory of a GPU by its name or its size. Raises UsageError."""
    known = known_gpu(text)
    if known is not None:
        return known.device
    try:
        return Device("cuda", gpu_memory(text))
    except UsageError as error:
        names = [gpu.name for gpu in KNOWN]
        raise UsageError(f"{error}{did_you_mean(text, names)} Known by name: {', '.join(names)}.") from None


def gpu_of(name: str | None) -> Gpu:
    """Returns the GPU of a name; without one, the GPU of this machine. Raises UsageError."""
    names = [gpu.name for gpu in KNOWN]
    if name is None:
        import torch

        here = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
        known = known_gpu(here)
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


@dataclass(frozen=True, slots=True)
class Cluster:
    """Machines that are alike. `per_node`: GPUs in each; `share`: what programs reach of the GPU's figures."""

    gpu: Gpu
    nodes: int
    per_node: int
    share: Share = Share()

    @property
    def count(self) -> int:
        return self.nodes * self.per_node

    def wire(self, gpus: int) -> float:
        """Bytes a second between so many GPUs that work together: NVLink or PCIe in one machine, else the network."""
        return self.gpu.link if gpus <= self.per_node else self.gpu.network


@dataclass(frozen=True, slots=True)
class Work:
    """What one step does."""

    # prompts, group: prompts, and completions of each
    prompts: int
    group: int
    # prompt, completion: tokens of one
    prompt: int
    completion: int
    passes: int = 1  # updates on each batch
    adapter: bool = False  # only an adapter trains
    ahead: bool = False  # the next batch is sampled while this one trains
    apart: bool = False  # GPUs that sample do not train

    @property
    def completions(self) -> int:
        return self.prompts * self.group

    @property
    def tokens(self) -> int:
        """Tokens of all sequences, prompts included."""
        return self.completions * (self.prompt + self.completion)


@dataclass(frozen=True, slots=True)
class Placement:
    """Who does what, and how long it takes."""

    # training, sampling: GPUs; the same ones where both are all of them
    training: int
    sampling: int
    split: int  # GPUs that share each layer of an engine
    sharding: Shared  # what of the policy is shared out among the GPUs that train, one of `SHARDINGS`
    memory: int  # bytes at the peak of a GPU that trains
    seconds: dict[str, float]  # part to seconds of a step: "sample", "update", "communicate", "sync"
    sync_bytes: int  # what is handed over each step: all weights, what changed, or the adapter
    ahead: bool

    @property
    def step(self) -> float:
        """Seconds of a whole step."""
        learn = max(self.seconds["update"], self.seconds["communicate"])
        sample = self.seconds["sample"]
        return (max(sample, learn) if self.ahead else sample + learn) + self.seconds["sync"]

    @property
    def bottleneck(self) -> str:
        """The part that takes longest."""
        return max(self.seconds, key=lambda part: self.seconds[part])


def place(shape: Shape, work: Work, cluster: Cluster) -> Placement:
    """Returns the placement with the shortest step. Raises UsageError if it fits nowhere."""
    placements = list(_placements(shape, work, cluster))
    if not placements:
        raise UsageError(
            f"on {cluster.count} x {cluster.gpu.name} no placement holds weights, gradients, optimizer and one "
            "sequence, sharded as far as possible. Take more nodes, a shorter context, or train an adapter (--lora)."
        )
    return min(placements, key=lambda placement: placement.step)


def _placements(shape: Shape, work: Work, cluster: Cluster) -> Iterator[Placement]:
    """Yields what fits; for each division of the GPUs the least sharding with which it does."""
    unit = cluster.per_node if cluster.nodes > 1 else 1
    for servers in range(unit, cluster.count, unit) if work.apart else (0,):
        for sharding in SHARDINGS if cluster.count - servers > 1 else SHARDINGS[:1]:
            placements = list(_sharded(shape, work, cluster, servers, sharding))
            if placements:
                yield from placements
                break


def _sharded(shape: Shape, work: Work, cluster: Cluster, servers: int, sharding: Shared) -> Iterator[Placement]:
    training, sampling = cluster.count - servers, servers or cluster.count
    spread = Spread(training, sharding)
    trained = _training(shape, work, cluster, spread)
    if trained is None:
        return
    memory, update, communicate = trained
    # What trains leaves its activations behind while an engine of the same GPU samples.
    kept = 0 if work.apart else held(shape, spread)
    size = shape.adapter if work.adapter else round(CHANGED * shape.parameters * shape.itemsize)
    wire = cluster.wire(cluster.count) if work.apart or sharding == "everything" else cluster.gpu.bandwidth
    for split in (t for t in (1, 2, 4, 8) if t <= cluster.per_node and sampling % t == 0):
        sample = _sampling(shape, work, cluster, sampling // split, split, kept)
        if sample is not None:
            sync = size / wire / cluster.share.wire
            parts = {"sample": sample, "update": update, "communicate": communicate, "sync": sync}
            yield Placement(training, sampling, split, sharding, memory, parts, size, work.ahead)


def _training(shape: Shape, work: Work, cluster: Cluster, spread: Spread) -> tuple[int, float, float] | None:
    """Returns bytes at the peak, and seconds of products and of communication; or None where it does not fit."""
    context, gpus = work.prompt + work.completion, spread.gpus
    sequences = math.ceil(work.completions / gpus)
    base = 4 if work.adapter else 6
    usable = cluster.gpu.device.usable
    for checkpointing, again in (("none", 0), ("full", 2)):
        most = peak(shape, context, 1, spread, checkpointing)
        if most > usable:
            continue
        two, single = (shape.update(context, n, checkpointing, "cuda") for n in (2, 1))
        spare = (usable - most) // max(1, two - single)
        micro = min(sequences, 1 + spare)
        products = sequences * context * (base + again) / 2 * _products(shape, context)
        moved = _moved(shape, spread, math.ceil(sequences / micro))
        update = products / (cluster.gpu.products * cluster.share.training)
        communicate = moved / (cluster.wire(gpus) * cluster.share.wire)
        return most, work.passes * update, work.passes * communicate
    return None


def _sampling(shape: Shape, work: Work, cluster: Cluster, engines: int, split: int, kept: int) -> float | None:
    gpu, share, context = cluster.gpu, cluster.share, work.prompt + work.completion
    weights = shape.parameters * shape.itemsize
    room = SPARE * gpu.device.usable - kept - weights / split
    most = int(room // (context * shape.cache / split))
    if most < 1:
        return None
    own = math.ceil(work.completions / engines)
    waves = math.ceil(own / most)
    held = math.ceil(own / waves)
    middle = work.prompt + work.completion / 2
    read = (weights + held * middle * shape.cache) / split / (gpu.bandwidth * share.decoding)
    products = held * _products(shape, round(middle)) / split / (gpu.products * share.prefill)
    exchange = 0.0
    if split > 1:  # two sums of a hidden state in each layer
        each = held * shape.hidden * shape.itemsize / (gpu.link * share.wire) + share.exchange
        exchange = 2 * shape.layers * each
    prompts = work.prompts * work.prompt * _products(shape, work.prompt)
    reading = prompts / (engines * split * gpu.products * share.prefill)
    return reading + waves * work.completion * (max(read, products) + exchange + share.round)


def _products(shape: Shape, context: int) -> float:
    """Operations for one token of a forward pass, with half of the context to attend to."""
    return 2 * shape.parameters + 2 * shape.layers * shape.hidden * context


def _moved(shape: Shape, spread: Spread, micro_batches: int) -> float:
    part = (spread.gpus - 1) / spread.gpus
    if spread.shared == "everything":
        return 3 * part * shape.weights * micro_batches
    return 2 * part * shape.gradients


def whole_sync(shape: Shape, placed: Placement) -> float:
    """Returns the seconds of handing all weights to the engines, over the wire that the placement's sync takes."""
    return placed.seconds["sync"] * shape.parameters * shape.itemsize / placed.sync_bytes
