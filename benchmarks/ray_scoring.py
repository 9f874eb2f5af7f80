"""How fast rewards are scored by a Ray cluster: rows a second on one node and on two, and what a row costs beside it.

    python benchmarks/ray_scoring.py [--rewards math code nothing] [--rows 4096] [--processes 1] [--rounds 1]

Prints a table in Markdown, with the machine and the command; what is being measured goes to stderr. The nodes are
processes of this machine (Ray's own `Cluster`). Each has as many processors as processes that score, and may use no
others; worker processes without a cluster ("here") have as many. The reward `math` gets answers that take computer
algebra, `code` short programs with three tests, each other ones every time. The places take turns, and a figure is the
least of the rounds, which other programs add least to. The cost of a row is that of a reward that does nothing.
"""

from __future__ import annotations

import argparse
import os
import platform
import secrets
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

os.environ["RAY_AUTH_MODE"] = "token"  # read when Ray is loaded
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(16))

import psutil

from grpo import Completion, reward
from grpo.core.cluster.ray_cluster import Cluster, Node
from grpo.core.scoring.executors import scoring_elsewhere
from grpo.core.scoring.nodes.pool import KIND, NodePool
from grpo.core.scoring.scorer import Scorer
from grpo.plugins._spec.binding import BoundReward
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


def limit(process: psutil.Process, processors: set[int]) -> None:
    """Lets a process run on these processors alone, and whatever it starts from now on."""
    with suppress(psutil.NoSuchProcess):
        for thread in process.threads():
            with suppress(ProcessLookupError):
                os.sched_setaffinity(thread.id, processors)


@contextmanager
def limited_here(processors: set[int]) -> Iterator[None]:
    """Lets this process run on these processors alone while it lasts."""
    before = os.sched_getaffinity(0)
    limit(psutil.Process(), processors)
    try:
        yield
    finally:
        limit(psutil.Process(), before)


def shares(processes: int) -> list[set[int]]:
    """Returns the processors of each of two nodes.

    Raises:
        SystemExit: there are not enough.
    """
    there = sorted(os.sched_getaffinity(0))
    if len(there) < 2 * processes:
        raise SystemExit(f"two nodes of {processes} need {2 * processes} processors, and there are {len(there)}.")
    return [set(there[n * processes : (n + 1) * processes]) for n in range(2)]


def started(processors: Sequence[set[int]]) -> Any:
    """Starts a cluster of nodes that have these processors, and returns it."""
    from ray.cluster_utils import Cluster as NodesHere

    cluster = NodesHere()
    for own in processors:
        node = cluster.add_node(num_cpus=len(own), object_store_memory=100 * 2**20)
        for raylet in node.all_processes["raylet"]:
            for process in (psutil.Process(raylet.process.pid), *psutil.Process(raylet.process.pid).children()):
                limit(process, own)
    return cluster


class Measured:
    """Measures one reward in one place after the other, on other rows each time."""

    def __init__(self, rows: int, processes: int) -> None:
        self._rows, self._processes, self._start = rows, processes, 0

    def seconds(self, plugin: Any, make: Any, cluster: Cluster, nodes: Sequence[Node]) -> float:
        """Returns how long the rows take, once everything is loaded; without nodes in worker processes here."""
        hosted = [cluster.host(KIND, {"workers": self._processes}, node) for node in nodes]
        pool = NodePool([(one, self._processes) for one in hosted])
        with (
            scoring_elsewhere(pool.submit) if hosted else nullcontext(),
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rewards", nargs="+", choices=["math", "code", "nothing"], default=["math", "code", "nothing"]
    )
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--processes", type=int, default=1, help="that score on each node")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    host, measured, processors = Host.discover(), Measured(options.rows, options.processes), shares(options.processes)
    cases = {
        "math": (host.reward("math"), algebra),
        "code": (host.reward("code"), programs),
        "nothing": (BoundReward(nothing, "__main__"), texts),
    }
    here = started(processors)
    print(f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}")
    print(f"python {shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])}\n")
    print("| reward | here, rows/s | 1 node, rows/s | 2 nodes, rows/s | 2 nodes to 1 | a row more on a node |")
    print("|---|---|---|---|---|---|", flush=True)
    with Cluster(here.address) as cluster:
        nodes = cluster.nodes()
        places: dict[str, list[Node]] = {"here": [], "1 node": nodes[:1], "2 nodes": nodes}
        for name in options.rewards:
            least = dict.fromkeys(places, float("inf"))
            for number in range(1, options.rounds + 1):
                for place, own in places.items():
                    with nullcontext() if own else limited_here(processors[0]):
                        seconds = measured.seconds(*cases[name], cluster, own)
                    sys.stderr.write(f"{name}, round {number}: {seconds:.1f} s, {place}\n")
                    least[place] = min(least[place], seconds)
            near, one, two = least.values()
            rates = " | ".join(f"{options.rows / seconds:,.0f}" for seconds in (near, one, two))
            more = f"{(one - near) / options.rows * 1e6:.0f} us" if name == "nothing" else ""
            print(f"| `{name}` | {rates} | {one / two:.2f} | {more} |", flush=True)
    here.shutdown()


if __name__ == "__main__":
    main()
