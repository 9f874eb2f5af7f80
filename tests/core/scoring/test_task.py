"""One plugin's share of a batch: each completion gets one result, the first that comes, from whichever thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from grpo import Completion, reward
from grpo.core.scoring.call import Caller
from grpo.core.scoring.outcome import Outcome
from grpo.core.scoring.task import Task
from grpo.plugins._spec.binding import BoundReward


def scored(score: float) -> Outcome:
    return Outcome("score", score)


def same(completion: str) -> float:
    return 1.0


def answers(completion: str, answer: str) -> float:
    return float(completion == answer)


def task(
    *completions: Completion, function: Callable[..., Any] = same, told: list[str] | None = None, **metadata: Any
) -> Task:
    spec = reward(version=1, name="mine", **metadata)(function)
    told = [] if told is None else told
    caller = Caller(BoundReward(spec, "their-dist"), retries=0, report=lambda text, error: told.append(text))
    return Task(caller, completions, [10 + place for place in range(len(completions))])


def scores(done: Task) -> list[float | None]:
    return [result.score for result in done.results() if isinstance(result, Outcome)]


def test_the_first_result_of_a_completion_wins() -> None:
    one = task(Completion("a"), Completion("b"))
    one.settle([0], [scored(0.25)])
    one.settle([0, 1], [scored(0.75), scored(0.5)])
    assert scores(one) == [0.25, 0.5]


def test_many_threads_settle_each_completion_once_and_whoever_waits_is_woken() -> None:
    many = task(*[Completion("a")] * 200)
    assert not many.wait(0.0)
    start = threading.Barrier(8)

    def settle(value: float) -> None:
        start.wait()
        for index in range(200):
            many.settle([index], [scored(value)])

    threads = [threading.Thread(target=settle, args=(number / 8,)) for number in range(8)]
    for thread in threads:
        thread.start()
    assert many.wait(60.0)
    kept = scores(many)
    for thread in threads:
        thread.join()
    assert scores(many) == kept


def test_a_row_without_its_column_fails_at_once_and_is_not_called_for() -> None:
    told: list[str] = []
    rows = [Completion("a", row={"answer": "a"}), Completion("b", row={"question": "?"}), Completion("c")]
    one = task(*rows, function=answers, told=told)
    assert one.calls() == [[0]]
    assert [one.open(index) for index in range(3)] == [True, False, False]
    assert "needs the column 'answer'; the row has: question." in told[0]
    assert "the row has: none." in told[1]
    one.settle([0], [scored(1.0)])
    assert [result.kind for result in one.results()] == ["score", "failure", "failure"]


def test_a_batch_plugin_gets_all_in_one_call_and_none_where_every_row_failed() -> None:
    def batch(completions: list[str], answer: list[str]) -> list[float]:
        return [1.0] * len(completions)

    rows = [Completion("a", row={"answer": "a"}), Completion("b"), Completion("c", row={"answer": "c"})]
    assert task(*rows, function=batch, batch=True).calls() == [[0, 2]]
    assert task(Completion("a"), function=batch, batch=True).calls() == []


def test_an_empty_batch_is_done() -> None:
    nothing = task()
    assert nothing.wait(0.0)
    assert nothing.results() == []


def test_a_failure_costs_the_open_completions_their_share_of_the_time_and_names_their_rows() -> None:
    told: list[str] = []
    one = task(Completion("a"), Completion("b"), Completion("c"), told=told)
    one.settle([1], [scored(1.0)])
    one.fail([0, 2], "it hung.", seconds=3.0)
    assert [result.seconds for result in one.results() if isinstance(result, Outcome)] == [1.5, 0.0, 1.5]
    assert [text.count("row 10") + text.count("row 12") for text in told] == [1, 1]
    one.fail_open("nobody is left")
    assert len(told) == 2


def test_rows_whose_results_come_from_elsewhere_are_not_called_for() -> None:
    one = task(Completion("a"), Completion("b"), Completion("c"))
    one.leave_out({11})
    assert one.calls() == [[0], [2]]
    assert one.rows([0, 2]) == [10, 12]
    assert [completion.text for completion in one.some([0, 2])] == ["a", "c"]
    assert one.some(range(3)) is one.completions


def test_a_batch_that_is_given_up_is_settled_without_a_report() -> None:
    told: list[str] = []
    one = task(Completion("a"), Completion("b"), told=told)
    one.settle([0], [scored(1.0)])
    one.abandon()
    assert [result.kind for result in one.results()] == ["score", "failure"]
    assert told == []
