"""How fast rewards are scored by a Ray cluster: rows a second on one node and on two, and what a row costs beside it.

Run it on a quiet machine: python benchmarks/ray_scoring.py [--rows 4096] [--processes 1]. The nodes are processes of
this machine (Ray's own `Cluster`), each with as many processes that score, so two nodes can be faster than one only
where there are processors for both. The reward `math` gets answers that take computer algebra, `code` short programs
with three tests, each other ones every time. Overhead per row is that of a reward that does nothing, beside the worker
processes of this machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import secrets
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

os.environ["RAY_AUTH_MODE"] = "token"  # read when Ray is loaded
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(16))

from grpo import Completion, reward
from grpo.core.cluster.ray_cluster import Cluster, Node
from grpo.core.scoring.executors import scoring_elsewhere
from grpo.core.scoring.nodes.pool import KIND, NodePool
from grpo.core.scoring.scorer import Scorer
from grpo.core.scoring.tally import table
from grpo.plugins._binding import BoundReward
from grpo.plugins.host import Host

_PROGRAM = (
    "```python\ndef power(x):\n    total = {start}\n    for n in range(200):\n        total += x\n    return total\n```"
)


@reward(version=1)
def nothing(completion: str) -> float:
    """Scores at once, in a worker process."""
    return 0.0


def algebra(count: int, start: int) -> list[Completion]:
    """Returns right and wrong answers to be compared by computer algebra."""
    pairs = ((f"(x + {n})(x - 3)", f"x^2 + {n - 3 - n % 2}x - {3 * n}") for n in range(start + 5, start + 5 + count))
    return [Completion(f"So we get $\\boxed{{{text}}}$.", row={"answer": gold}) for text, gold in pairs]


def programs(count: int, start: int) -> list[Completion]:
    """Returns programs, no two alike, each with three tests."""
    made = []
    for n in range(start, start + count):
        tests = [f"assert power({x}) == {200 * x + n}" for x in (1, 2, 3)]
        made.append(Completion(_PROGRAM.format(start=n), row={"tests": tests, "entry_point": "power"}))
    return made


def texts(count: int, start: int) -> list[Completion]:
    """Returns texts for the reward that does nothing."""
    return [Completion(f"This is completion {n}, of a usual kind. " * 10) for n in range(start, start + count)]


class Measured:
    """Measures one reward in one place after the other, on other rows each time."""

    def __init__(self, rows: int, processes: int) -> None:
        self._rows, self._processes, self._start = rows, processes, 0

    def seconds(self, plugin: Any, make: Any, cluster: Cluster | None, nodes: Sequence[Node]) -> float:
        """Returns how long the rows take, once everything is loaded; without nodes in worker processes here."""
        hosted = [cluster.host(KIND, {"workers": self._processes}, node) for node in nodes] if cluster else []
        pool = NodePool([(one, self._processes) for one in hosted])
        with (
            scoring_elsewhere(pool) if hosted else nullcontext(),
            Scorer([plugin], workers=self._processes) as scorer,
        ):
            scorer.score(self._next(make, 64 * self._processes))
            batch = self._next(make, self._rows)
            started = time.perf_counter()
            [outcomes] = scorer.score(batch).values()
            seconds = time.perf_counter() - started
        pool.close()
        for one in hosted:
            one.end()
        failed = [outcome.reason for outcome in outcomes if outcome.kind == "failure"]
        if failed:
            raise SystemExit(f"{len(failed)} rows failed, the first with: {failed[0]}")
        return seconds

    def _next(self, make: Any, count: int) -> list[Completion]:
        self._start += count
        batch: list[Completion] = make(count, self._start)
        return batch


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--processes", type=int, default=1, help="that score on each node")
    options = parser.parse_args()
    from ray.cluster_utils import Cluster as NodesHere

    here = NodesHere()
    for _ in range(2):
        here.add_node(num_cpus=options.processes, object_store_memory=100 * 2**20)
    host, measured = Host.discover(), Measured(options.rows, options.processes)
    cases = [
        (host.reward("math"), algebra),
        (host.reward("code"), programs),
        (BoundReward(nothing, "__main__"), texts),
    ]
    lines = []
    with Cluster(here.address) as cluster:
        nodes = cluster.nodes()
        for plugin, make in cases:
            near = measured.seconds(plugin, make, None, [])
            one = measured.seconds(plugin, make, cluster, nodes[:1])
            two = measured.seconds(plugin, make, cluster, nodes)
            rates = [f"{options.rows / seconds:,.0f}" for seconds in (near, one, two)]
            overhead = f"{(one - near) / options.rows * 1e6:+.0f} us"
            print(f"{plugin.name}: {near:.1f} s here, {one:.1f} s on one node, {two:.1f} s on two", flush=True)
            lines.append((plugin.name, *rates, f"{one / two:.2f}", overhead))
    here.shutdown()
    print(f"{platform.platform()}, {os.cpu_count()} processors, {options.processes} processes on a node")
    head = ("reward", "here, rows/s", "1 node, rows/s", "2 nodes, rows/s", "2 nodes to 1", "a row on a node")
    print(table(head, lines))


if __name__ == "__main__":
    main()
