"""Decides what runs where on a cluster, or says why it does not fit.

Training comes first, on the fewest nodes; servers take other GPUs, rewards and sandboxes other processors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from grpo.core.cluster.ray_cluster import Node
from grpo.plugins.errors import UsageError


@dataclass(frozen=True, slots=True)
class Asked:
    workers: int = 1  # processes that train together
    servers: int = 0  # rollout servers
    nodes: int | None = None  # machines that training is spread over; None: as few as hold it


@dataclass(frozen=True, slots=True)
class Placement:
    ranks: tuple[Node, ...]  # the node of each process that trains
    servers: tuple[Node, ...]  # the node of each rollout server
    scorers: tuple[tuple[Node, int], ...]  # each node with its number of processes that score
    gpus: bool  # whether each process that trains, and each server, has a GPU

    def lines(self) -> list[str]:
        training, serving = Counter(self.ranks), Counter(self.servers)
        lines = []
        for number, (node, scoring) in enumerate(self.scorers, 1):
            parts = []
            if training[node]:
                parts.append(f"{training[node]} that train{'s' if training[node] == 1 else ''}")
            if serving[node]:
                parts.append(f"{serving[node]} that sample{'s' if serving[node] == 1 else ''}")
            parts.append(f"{scoring} that score{'s' if scoring == 1 else ''}")
            has = f"{node.cpus} processors" + (f", {node.gpus} GPUs" if node.gpus else "")
            lines.append(f"node {number} ({node.address}, {has}): processes: {', '.join(parts)}")
        return lines


def place(nodes: Sequence[Node], asked: Asked) -> Placement:
    """Places everything. Raises UsageError, with what there is, if it does not fit."""
    gpus = any(node.gpus for node in nodes)
    room = {node: node.gpus if gpus else node.cpus for node in nodes}
    what = "GPUs" if gpus else "processors"
    there = f"the cluster has {len(nodes)} nodes with {', '.join(str(room[node]) for node in nodes)} {what}"
    if asked.nodes is not None and asked.nodes > asked.workers:
        raise UsageError(
            f"--nodes {asked.nodes} has more machines than --workers {asked.workers} has processes that train. Ask for "
            "fewer machines or more processes."
        )
    ranks = _ranks(nodes, room, asked, there)
    left = {node: room[node] - ranks.count(node) for node in nodes}
    servers: list[Node] = []
    for _ in range(asked.servers):
        roomiest = max(nodes, key=lambda node: left[node])
        if left[roomiest] < 1:
            raise UsageError(
                f"--servers {asked.servers} beside {asked.workers} processes that train do not fit: {there}. Ask for "
                "fewer, or add nodes to the cluster."
            )
        left[roomiest] -= 1
        servers.append(roomiest)
    taken = Counter([*ranks, *servers])
    scorers = tuple((node, max(1, node.cpus - taken[node])) for node in nodes)
    return Placement(tuple(ranks), tuple(servers), scorers, gpus)


def _ranks(nodes: Sequence[Node], room: dict[Node, int], asked: Asked, there: str) -> list[Node]:
    unfit = UsageError(
        f"--workers {asked.workers}{'' if asked.nodes is None else f' on --nodes {asked.nodes}'} does not fit: "
        f"{there}. Ask for fewer, or add nodes to the cluster."
    )
    most = sorted(nodes, key=lambda node: -room[node])  # stable: the preferred ones stay first among equals
    if asked.nodes is None:
        fitting = next(
            (n for n in range(1, len(most) + 1) if sum(room[taken] for taken in most[:n]) >= asked.workers), None
        )
        if fitting is None:
            raise unfit
        share: dict[Node, int] = {}
        for node in most[:fitting]:
            share[node] = min(room[node], asked.workers - sum(share.values()))
    else:
        if asked.nodes > len(most):
            raise unfit
        share = dict.fromkeys(most[: asked.nodes], 0)
        for _ in range(asked.workers):
            node = min(share, key=lambda candidate: (share[candidate] >= room[candidate], share[candidate]))
            share[node] += 1
        if any(share[node] > room[node] for node in share):
            raise unfit
    return [node for node in nodes for _ in range(share.get(node, 0))]
