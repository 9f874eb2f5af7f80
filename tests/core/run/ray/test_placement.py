"""What runs where on a cluster: whatever fits is placed, whatever does not is refused with what there is."""

from __future__ import annotations

import pytest

from grpo.core.cluster.ray_cluster import Node
from grpo.core.run.ray.placement import Asked, place
from grpo.plugins.errors import UsageError


def nodes(*sizes: tuple[int, int]) -> list[Node]:
    return [Node(f"n{n}", f"10.0.0.{n}", cpus, gpus) for n, (cpus, gpus) in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "asked", "ranks", "servers", "scoring"),
    [
        ([(2, 0), (2, 0)], Asked(), "n0", "", [1, 2]),
        ([(2, 0), (2, 0)], Asked(workers=2), "n0 n0", "", [1, 2]),
        ([(2, 0), (2, 0)], Asked(workers=2, nodes=2), "n0 n1", "", [1, 1]),
        ([(2, 0), (2, 0)], Asked(workers=3), "n0 n0 n1", "", [1, 1]),
        ([(64, 0), (16, 8), (16, 8)], Asked(workers=8), "n1 n1 n1 n1 n1 n1 n1 n1", "", [64, 8, 16]),
        ([(64, 0), (16, 8), (16, 8)], Asked(workers=2, servers=2, nodes=2), "n1 n2", "n1 n2", [64, 14, 14]),
        ([(8, 1), (8, 1)], Asked(servers=1), "n0", "n1", [7, 7]),
    ],
    ids=["one", "packed", "spread", "over the edge", "GPUs", "GPUs for both", "one GPU each"],
)
def test_processes_go_where_there_is_room(
    sizes: list[tuple[int, int]], asked: Asked, ranks: str, servers: str, scoring: list[int]
) -> None:
    placed = place(nodes(*sizes), asked)
    assert [node.id for node in placed.ranks] == ranks.split()
    assert [node.id for node in placed.servers] == servers.split()
    assert [workers for _, workers in placed.scorers] == scoring
    assert placed.gpus is any(gpus for _, gpus in sizes)


@pytest.mark.parametrize(
    ("sizes", "asked", "words"),
    [
        ([(2, 0), (2, 0)], Asked(workers=5), "--workers 5 does not fit: the cluster has 2 nodes with 2, 2 processors"),
        ([(2, 0)], Asked(workers=2, nodes=2), "--workers 2 on --nodes 2 does not fit: the cluster has 1 nodes"),
        ([(2, 0), (2, 0)], Asked(workers=1, nodes=2), "--nodes 2 has more machines than --workers 1 has processes"),
        ([(9, 2)], Asked(workers=2, servers=1), "--servers 1 beside 2 processes that train do not fit"),
        ([(4, 1), (4, 3)], Asked(workers=4, nodes=1), "with 1, 3 GPUs"),
    ],
    ids=["too many", "too few machines", "idle machines", "no GPU for a server", "not on one machine"],
)
def test_what_does_not_fit_is_refused_with_what_there_is(
    sizes: list[tuple[int, int]], asked: Asked, words: str
) -> None:
    with pytest.raises(UsageError, match="Ask for fewer") as refused:
        place(nodes(*sizes), asked)
    assert words in str(refused.value)


def test_each_node_has_a_line_that_says_what_it_does() -> None:
    placed = place(nodes((4, 1), (8, 2)), Asked(workers=2, servers=1))
    assert placed.lines() == [
        "node 1 (10.0.0.0, 4 processors, 1 GPUs): processes: 1 that samples, 3 that score",
        "node 2 (10.0.0.1, 8 processors, 2 GPUs): processes: 2 that train, 6 that score",
    ]
