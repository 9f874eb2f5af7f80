"""Scoring on the nodes of a real cluster: both take part, and one that is removed costs nobody a score."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from grpo import Completion, reward
from grpo.core.cluster.ray_cluster import Cluster
from grpo.core.scoring.executors import scoring_elsewhere
from grpo.core.scoring.nodes.pool import KIND, NodePool
from grpo.core.scoring.scorer import Scorer
from grpo.plugins._spec.binding import BoundReward

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@reward(version=1)
def slow_length(completion: str) -> float:
    time.sleep(0.05)
    return float(len(completion))


@reward(version=1)
def poisonous(completion: str) -> float:
    if completion == "poison":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(10)
    return float(len(completion))


def test_a_node_that_is_removed_in_the_middle_costs_nobody_a_score(
    ray_address: str, further_node: Callable[[int], Callable[[], None]]
) -> None:
    remove = further_node(2)
    plugin = BoundReward(slow_length, "__main__")
    batch = [Completion("x" * (n % 7)) for n in range(200)]
    with Cluster(ray_address) as cluster:
        nodes = cluster.nodes()
        assert len(nodes) == 3
        hosted = [cluster.host(KIND, {"workers": 2}, node, restarts=3) for node in nodes]
        pool = NodePool([(one, 2) for one in hosted])
        threading.Timer(1.0, remove).start()
        with scoring_elsewhere(pool.submit), Scorer([plugin]) as scorer:
            outcomes = scorer.score(batch)["slow_length"]
            assert [outcome.score for outcome in outcomes] == [float(n % 7) for n in range(200)]
        pool.close()


def test_a_call_that_ends_its_node_is_a_failure_and_the_other_calls_are_scored(ray_address: str) -> None:
    plugin = BoundReward(poisonous, "__main__")
    batch = [Completion("poison" if n == 3 else "x" * n) for n in range(12)]
    with Cluster(ray_address) as cluster:
        hosted = [cluster.host(KIND, {"workers": 1}, node, restarts=4) for node in cluster.nodes()]
        pool = NodePool([(one, 1) for one in hosted])
        with scoring_elsewhere(pool.submit), Scorer([plugin]) as scorer:
            outcomes = scorer.score(batch)["poisonous"]
            again = scorer.score(batch[:3])["poisonous"]
        pool.close()
    assert [outcome.score for outcome in outcomes] == [None if n == 3 else float(n) for n in range(12)]
    assert "for the third time with this call" in str(outcomes[3].reason)
    assert [outcome.score for outcome in again] == [0.0, 1.0, 2.0]
