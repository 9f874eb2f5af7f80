"""Scoring on nodes: the outcomes of one machine, whatever happens to the nodes; what travels arrives."""

from __future__ import annotations

import pickle
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from grpo import Completion, reward
from grpo.core.cluster.ray_cluster import NodeLost
from grpo.core.scoring.executors import scoring_elsewhere
from grpo.core.scoring.nodes import shipping
from grpo.core.scoring.nodes.node import ScoringNode
from grpo.core.scoring.nodes.pool import NodePool
from grpo.core.scoring.scorer import Scorer
from grpo.plugins._spec.binding import BoundReward
from grpo.plugins.host import Host

pytestmark = pytest.mark.slow  # worker processes


class Near:
    """A node in this process; `lost` says of each chunk what becomes of it: None, or whether it is lost for good."""

    def __init__(self, name: str, lost: Callable[[int], bool | None] = lambda asked: None) -> None:
        self.name = name
        self.asked = 0
        self.node = ScoringNode(1, 0)
        self._lost = lost
        self._threads = ThreadPoolExecutor(4)

    def ask(self, method: str, message: bytes = b"") -> Future[bytes]:
        self.asked += 1
        for_good = self._lost(self.asked)
        if for_good is None:
            return self._threads.submit(getattr(self.node, method), message)
        gone: Future[bytes] = Future()
        gone.set_exception(NodeLost(f"{self.name} is lost", for_good))
        return gone

    def end(self) -> None:
        self._threads.shutdown()
        self.node.close()


@contextmanager
def scored_on(nodes: Sequence[Near], plugins: Sequence[Any]) -> Iterator[Scorer]:
    pool = NodePool([(node, 1) for node in nodes])
    try:
        with scoring_elsewhere(pool.submit), Scorer(plugins) as scorer:
            yield scorer
    finally:
        pool.close()
        for node in nodes:
            node.end()


def numbers(count: int) -> list[Completion]:
    return [Completion(f"\\boxed{{{n}}}", row={"answer": "7"}) for n in range(count)]


SOURCE = """
import shipped_neighbour
from grpo import reward

@reward(version=1)
def mine(completion: str) -> float:
    import late_neighbour
    return shipped_neighbour.VALUE + late_neighbour.VALUE
"""


@pytest.mark.core
def test_nodes_give_the_outcomes_of_one_machine_and_both_take_part() -> None:
    nodes = [Near("a"), Near("b")]
    with scored_on(nodes, [Host.discover().reward("math")]) as scorer:
        outcomes = scorer.score(numbers(40))["math"]
    assert [outcome.score for outcome in outcomes] == [1.0 if n == 7 else 0.0 for n in range(40)]
    assert all(node.asked for node in nodes)


def test_the_calls_of_a_lost_node_are_scored_by_another_one() -> None:
    nodes = [Near("a", lambda asked: True), Near("b")]
    with scored_on(nodes, [Host.discover().reward("math")]) as scorer:
        outcomes = scorer.score(numbers(20))["math"]
    assert [outcome.kind for outcome in outcomes] == ["score"] * 20
    assert nodes[0].asked <= 2


@pytest.mark.core
def test_a_call_whose_nodes_are_lost_three_times_is_a_failure_and_never_a_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo.core.scoring.nodes.pool._AWAY", 0.0)
    nodes = [Near("a", lambda asked: False)]
    with scored_on(nodes, [Host.discover().reward("math")]) as scorer:
        outcomes = scorer.score(numbers(3))["math"]
    assert {outcome.kind for outcome in outcomes} == {"failure"}
    assert "a is lost, for the third time with this call" in str(outcomes[0].reason)
    alone = Near("b", lambda asked: False)
    with scored_on([alone], [Host.discover().reward("math")]) as scorer:
        scorer.score(numbers(1))
    assert alone.asked == 3


def test_without_a_node_everything_fails_and_says_so() -> None:
    with scored_on([Near("a", lambda asked: True)], [Host.discover().reward("math")]) as scorer:
        outcomes = scorer.score(numbers(5))["math"]
    assert {outcome.kind for outcome in outcomes} == {"failure"}
    assert "no node is left to score it" in str(outcomes[0].reason)


def test_what_is_not_installed_on_a_node_is_named_with_its_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "_installed", lambda module: ("their-rewards", "1.2"))
    with scored_on([Near("node a")], [Host.discover().reward("math")]) as scorer:
        outcome = scorer.score(numbers(1))["math"][0]
    assert outcome.kind == "failure"
    assert "on node a their-rewards is not installed (Python" in str(outcome.reason)
    assert "and the run was started with 1.2" in str(outcome.reason)


def test_a_local_file_travels_with_the_neighbours_that_it_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text(SOURCE)
    (tmp_path / "shipped_neighbour.py").write_text("VALUE = 0.25\n")
    (tmp_path / "late_neighbour.py").write_text("VALUE = 0.5\n")
    plugin = Host([]).reward(f"{tmp_path}/mine.py:mine")
    shipment = shipping.ship(plugin)
    shutil.rmtree(tmp_path)  # another machine has none of its files
    monkeypatch.delitem(sys.modules, "shipped_neighbour")
    for name in [name for name in sys.modules if name.startswith("grpo_file_mine")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(shipping, "ship", lambda plugin: shipment)
    monkeypatch.setattr("grpo.core.scoring.nodes.pool.ship", lambda plugin: shipment)
    with scored_on([Near("a")], [plugin]) as scorer:
        outcome = scorer.score([Completion("x")])[plugin.name][0]
    assert outcome.score == 0.75, outcome.reason
    monkeypatch.delitem(sys.modules, "shipped_neighbour", raising=False)


def test_what_a_script_defines_travels_by_value_and_its_failures_come_back() -> None:
    half = 0.5

    @reward(version=1)
    def halved(completion: str) -> float:
        return half / len(completion)

    with scored_on([Near("a")], [BoundReward(halved, "__main__")]) as scorer:
        outcomes = scorer.score([Completion("x"), Completion("")])["halved"]
        assert [outcome.kind for outcome in outcomes] == ["score", "failure"]
        assert "row 1: ZeroDivisionError" in str(outcomes[1].reason)
        assert "Traceback" in scorer.first_failure["halved"]


def test_a_group_is_one_call_on_a_node_too() -> None:
    @reward(version=1, scope="group")
    def ranks(completions: list[str]) -> list[float]:
        return [sorted(completions).index(text) / len(completions) for text in completions]

    batch = [Completion(text, group=group) for group in range(3) for text in ("b", "a", "c")]
    with scored_on([Near("a"), Near("b")], [BoundReward(ranks, "__main__")]) as scorer:
        scores = [outcome.score for outcome in scorer.score(batch)["ranks"]]
    assert scores == [1 / 3, 0.0, 2 / 3] * 3


def test_programs_are_judged_on_nodes_and_rewards_of_this_thread_stay_here() -> None:
    nodes, here = [Near("a")], threading.get_ident()
    threads: set[int] = set()

    @reward(version=1, isolation="inline")
    def local(completion: str) -> float:
        threads.add(threading.get_ident())
        return 1.0

    row = {"tests": ["assert f(2) == 4", "assert f(-3) == -6"], "entry_point": "f"}
    batch = [Completion(f"```python\ndef f(x):\n    return {result}\n```", row=row) for result in ("2 * x", "x + 2")]
    with scored_on(nodes, [Host.discover().reward("code"), BoundReward(local, "__main__")]) as scorer:
        outcomes = scorer.score(batch)
    assert [outcome.score for outcome in outcomes["code"]] == [1.0, 0.0]
    assert nodes[0].asked
    assert threads == {here}


def test_passing_a_plugin_on_loads_none_of_its_code() -> None:
    class Loud:
        def __reduce__(self) -> tuple[Any, ...]:
            return (exec, ("raise SystemExit('loaded')",))

    loud = Loud()

    @reward(version=1)
    def loaded(completion: str) -> float:
        return float(loud is not None)

    with pytest.raises(SystemExit):
        pickle.loads(pickle.dumps(loud))
    plugin = pickle.loads(shipping.ship(BoundReward(loaded, "__main__"))[0])
    assert plugin.name == "loaded"
