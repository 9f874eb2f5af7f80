"""Rewards in worker processes: every way to hang or to crash, for real, and who pays for it."""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import importlib.util
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE, Clock, wait_for

from grpo import Completion, Verdict, reward, verifier
from grpo.core.scoring.call import Caller
from grpo.core.scoring.scorer import Judgement, Outcome, Scorer
from grpo.core.scoring.workers.job import PluginPayload
from grpo.plugins._spec.binding import BoundReward, BoundVerifier
from grpo.plugins.errors import TransientError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="worker processes are ended the Linux way"),
]


def bound(function: Callable[..., Any], timeout: float = PATIENCE, **metadata: Any) -> BoundReward:
    spec = reward(version=1, name="mine", **metadata)(function)
    return BoundReward(spec, "their-dist", timeout=timeout)


def completions(*texts: str) -> list[Completion]:
    return [Completion(text) for text in texts]


def scores(function: Callable[..., Any], *texts: str, workers: int = 2, **keywords: Any) -> list[Outcome]:
    with Scorer([bound(function, **keywords)], workers=workers) as scorer:
        return scorer.score(completions(*texts))["mine"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which the pool ends calls."""
    return Clock(monkeypatch, "grpo.core.scoring.workers.pool")


def killer(completion: str, mark: str = "") -> float | None:
    """Does what the completion says, and leaves a mark before."""
    if mark and completion in ("sleep", "power"):
        Path(mark).touch()
    match completion:
        case "sleep":
            time.sleep(2 * PATIENCE)
        case "power":  # one C call that keeps the GIL
            math.factorial(10**8)
        case "exit":
            os._exit(3)
        case "segfault":
            ctypes.string_at(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "memory":
            hoard = [bytearray(1 << 24) for _ in range(1 << 10)]
            return float(len(hoard))
        case "sys.exit":
            sys.exit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "fork":
            if os.fork() == 0:
                sys.exit(0)
        case "alarm":
            signal.setitimer(signal.ITIMER_REAL, 0.05)
        case "abstain":
            return None
        case "nan":
            return math.nan
    return 1.0


@pytest.mark.core
@pytest.mark.parametrize(
    ("deed", "words"),
    [
        ("sleep", "longer than its time limit of 60 s; its worker process was killed"),
        ("power", "longer than its time limit of 60 s; its worker process was killed"),
        ("exit", "ended with exit code 3"),
        ("segfault", "killed by SIGSEGV"),
        ("kill", "killed by SIGKILL"),
        ("memory", "MemoryError"),
        ("sys.exit", "SystemExit: 3"),
        ("interrupt", "KeyboardInterrupt"),
        ("nan", "it returned nan"),
    ],
)
def test_a_crash_or_a_hang_costs_only_its_own_completion(deed: str, words: str, tmp_path: Path, clock: Clock) -> None:
    mark = tmp_path / "begun"
    clock.forward_after(mark.exists)
    with Scorer([bound(killer)], workers=1, memory=1 << 28) as scorer:
        texts = ["a", "a", deed, *["a"] * 20, "abstain"]
        outcomes = scorer.score([Completion(text, row={"mark": str(mark)}) for text in texts])["mine"]
        assert [outcome.kind for outcome in outcomes] == ["score"] * 2 + ["failure"] + ["score"] * 20 + ["abstain"]
        assert (outcomes[2].reason or "").startswith("reward 'mine' of their-dist, row 2: ")
        assert words in (outcomes[2].reason or "")
        if deed in ("sleep", "power", "segfault"):
            assert "in killer" in scorer.first_failure["mine"]
        assert scorer.score(completions("a"))["mine"][0].score == 1.0


def test_many_crashes_among_many_rows_are_each_blamed_on_the_right_row() -> None:
    texts = ["exit" if i % 50 == 7 else "segfault" if i % 50 == 23 else "a" for i in range(200)]
    outcomes = scores(killer, *texts)
    assert [outcome.kind == "failure" for outcome in outcomes] == [text != "a" for text in texts]


def test_two_workers_that_refuse_the_same_packing_leave_the_other_way_to_try() -> None:
    payload = PluginPayload(Caller(bound(killer), retries=0, report=lambda text, error: None))
    reference, first = payload.packed(), payload.key
    assert payload.refused(first)
    value, second = payload.packed(), payload.key
    assert payload.refused(first)  # the second worker's answer comes when the value is already on its way
    assert (payload.key, payload.packed()) == (second, value)
    assert reference != value
    assert not payload.refused(second)


def test_a_forked_child_that_comes_back_and_a_timer_left_set_disturb_nobody() -> None:
    outcomes = scores(killer, "a", "fork", "a", "alarm", "sleep-not", "a", workers=1)
    assert [outcome.kind for outcome in outcomes] == ["score"] * 6


_poison: list[str] = []


def poisoned(completion: str) -> float:
    """Dies on the row after a poisoned one, unless the worker was replaced."""
    if _poison:
        os._exit(1)
    if completion == "poison":
        _poison.append(completion)
    return 1.0


@pytest.mark.core
def test_a_row_does_not_pay_for_what_an_earlier_row_left_behind() -> None:
    outcomes = scores(poisoned, "a", "poison", "b", "c", workers=1)
    assert [outcome.kind for outcome in outcomes] == ["score"] * 4


def worker_number(completion: str) -> float:
    if completion.startswith("/"):
        Path(completion).touch()
        time.sleep(2 * PATIENCE)
    return float(os.getpid())


@pytest.mark.core
def test_the_worker_of_a_hang_is_replaced_and_a_healthy_one_is_kept(tmp_path: Path, clock: Clock) -> None:
    mark = tmp_path / "begun"
    with Scorer([bound(worker_number)], workers=1) as scorer:
        first, again = (scorer.score(completions("a"))["mine"][0].score for _ in range(2))
        assert first == again != os.getpid()
        clock.forward_after(mark.exists)
        assert scorer.score(completions(str(mark)))["mine"][0].kind == "failure"
        assert scorer.score(completions("a"))["mine"][0].score != first
        with pytest.raises(ProcessLookupError):
            os.kill(int(first or 0), 0)


def test_closures_lambdas_and_options_travel() -> None:
    bonus = 0.25

    def closure(completion: str, *, scale: float = 1.0) -> float:
        return len(completion) * scale + bonus + (0.0 if os.getpid() == parent else 1.0)

    parent = os.getpid()
    spec = reward(version=1, name="mine")(closure)
    with Scorer([BoundReward(spec, "d", options={"scale": 2.0})]) as scorer:
        assert scorer.score(completions("ab"))["mine"][0].score == 5.25
    assert scores(lambda completion: float(os.getpid() != parent), "a")[0].score == 1.0


@pytest.mark.core
def test_a_function_from_a_file_travels_even_with_what_cannot_be_pickled(tmp_path: Path) -> None:
    file = tmp_path / "filed.py"
    file.write_text(
        textwrap.dedent("""
        import os, threading
        from grpo import reward
        LOCK = threading.Lock()
        @reward(version=1)
        def locked(completion: str) -> float:
            with LOCK:
                return float(os.getpid())
        """)
    )
    module_spec = importlib.util.spec_from_file_location("grpo_test_filed", file)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules["grpo_test_filed"] = module
    try:
        module_spec.loader.exec_module(module)
        with Scorer([BoundReward(module.locked, str(file))]) as scorer:
            outcome = scorer.score(completions("a"))["locked"][0]
    finally:
        del sys.modules["grpo_test_filed"]
    assert outcome.kind == "score"
    assert outcome.score != os.getpid()


def test_a_function_that_cannot_travel_fails_aloud() -> None:
    lock = threading.Lock()

    def locked(completion: str) -> float:
        with lock:
            return 1.0

    with Scorer([bound(locked)]) as scorer:
        outcomes = scorer.score(completions("a", "b"))["mine"]
        assert "cannot be sent to a worker process" in (outcomes[1].reason or "")
        assert "pickle" in scorer.first_failure["mine"]


def test_rows_go_with_the_columns_that_are_read_and_a_bad_one_fails_alone() -> None:
    def near(completion: str, answer: object) -> float:
        return float(completion == answer)

    rows: list[dict[str, Any]] = [
        {"answer": "a", "other": threading.Lock()},
        {"answer": threading.Lock()},
        {"answer": "b"},
        {"gold": "a"},
    ]
    with Scorer([bound(near)]) as scorer:
        outcomes = scorer.score([Completion("a", row=row) for row in rows])["mine"]
    assert [outcome.score for outcome in outcomes] == [1.0, None, 0.0, None]
    assert "cannot be sent to a worker process" in (outcomes[1].reason or "")
    assert "needs the column 'answer'" in (outcomes[3].reason or "")


@pytest.mark.core
def test_whole_completions_and_verdicts_cross_the_border() -> None:
    def judge(completion: Completion) -> Verdict:
        return Verdict(completion.finish_reason == "length", completion.text, "because")

    plugin = BoundVerifier(verifier(version=1)(judge), "d")
    with Scorer([plugin]) as scorer:
        judgements = scorer.judge([Completion("é\ud800", finish_reason="length")])["judge"]
    assert judgements == [Judgement("verdict", Verdict(True, "é\ud800", "because"))]


def test_a_batch_goes_in_one_call_and_fails_as_one(tmp_path: Path, clock: Clock) -> None:
    mark = tmp_path / "begun"

    def batch(completions: list[str]) -> list[float]:
        if "exit" in completions:
            os._exit(1)
        if "hang" in completions:
            mark.touch()
            time.sleep(2 * PATIENCE)
        return [float(len(completions))] * len(completions)

    clock.forward_after(mark.exists)
    with Scorer([bound(batch, batch=True)]) as scorer:
        assert [o.score for o in scorer.score(completions("a", "b", "c"))["mine"]] == [3.0] * 3
        assert [o.kind for o in scorer.score(completions("a", "exit"))["mine"]] == ["failure"] * 2
        assert [o.kind for o in scorer.score(completions("a", "hang"))["mine"]] == ["failure"] * 2
        assert [o.score for o in scorer.score(completions("a"))["mine"]] == [1.0]


def test_what_plugins_print_and_read_is_no_part_of_the_protocol(capfd: pytest.CaptureFixture[str]) -> None:
    def noisy(completion: str) -> float:
        print("from python")
        subprocess.run(["echo", "from below"], check=True)
        return float(sys.stdin.read() == "")

    assert [outcome.score for outcome in scores(noisy, "a", "b")] == [1.0, 1.0]
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("from python") == err.count("from below") == 2


def test_transient_trouble_is_retried_within_a_new_time_limit(tmp_path: Path, clock: Clock) -> None:
    """Each of two calls takes most of a limit."""
    calls: list[str] = []

    def flaky(completion: str) -> float:
        calls.append(completion)
        mark = tmp_path / f"begun{len(calls)}"
        mark.touch()
        wait_for(mark.with_suffix(".over").exists)
        if len(calls) < 2:
            raise TransientError("busy")
        return float(len(calls))

    def watch() -> None:
        for number in (1, 2):
            mark = tmp_path / f"begun{number}"
            assert wait_for(mark.exists)
            assert clock.looked_at()
            clock.forward(400.0)
            assert clock.looked_at()
            mark.with_suffix(".over").touch()

    threading.Thread(target=watch, daemon=True).start()
    assert scores(flaky, "a", timeout=600.0)[0].score == 2.0


@pytest.mark.slow
def test_it_works_in_a_thread_and_inside_a_running_loop_and_from_several_threads_at_once() -> None:
    with Scorer([bound(killer)]) as scorer:

        async def inside() -> list[Outcome]:
            return scorer.score(completions("a", "sys.exit"))["mine"]

        assert [outcome.kind for outcome in asyncio.run(inside())] == ["score", "failure"]
        found: list[list[str]] = []
        threads = [
            threading.Thread(
                target=lambda: found.append([o.kind for o in scorer.score(completions("a", "exit", "a"))["mine"]])
            )
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [["score", "failure", "score"]] * 4


def test_a_worker_imports_no_torch_and_ignores_ctrl_c() -> None:
    def state(completion: str) -> float:
        heavy = {"torch", "transformers", "trl", "numpy", "gymnasium", "pydantic"} & set(sys.modules)
        return float(not heavy and signal.getsignal(signal.SIGINT) is signal.SIG_IGN)

    assert scores(state, "a")[0].score == 1.0


# A process that a shell starts in the background ignores SIGINT, and passes that on.
_SCRIPT = """
import os, signal, sys, time
from grpo import Completion, reward
from grpo.core.scoring.scorer import Scorer
from grpo.plugins._spec.binding import BoundReward

@reward(version=1)
def stuck(completion: str) -> float:
    with open(sys_argv, "a") as file:
        file.write(f"{os.getpid()}\\n")
    return float(pow(3, 10**9) > 0)

sys_argv = sys.argv[1]
signal.signal(signal.SIGINT, signal.default_int_handler)
with Scorer([BoundReward(stuck, "d", timeout=60)], workers=2) as scorer:
    scorer.score([Completion("a"), Completion("b")])
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.core
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_die_with_their_parent(tmp_path: Path, how: signal.Signals) -> None:
    pids = tmp_path / "pids"
    pids.touch()
    with subprocess.Popen([sys.executable, "-c", _SCRIPT, str(pids)], stderr=subprocess.DEVNULL) as parent:
        try:
            assert wait_for(lambda: len(pids.read_text().split()) == 2)
            workers = [int(pid) for pid in pids.read_text().split()]
            assert all(alive(pid) for pid in workers)
            parent.send_signal(how)
            assert parent.wait(PATIENCE) != 0
        finally:
            parent.kill()
    assert wait_for(lambda: not any(alive(pid) for pid in workers))


SLOW_MODULE = """
import pathlib, time
mark = pathlib.Path(__file__).with_suffix(".begun")
mark.touch()
time.sleep(1.2)
while not mark.with_suffix(".over").exists():
    time.sleep(0.01)
"""


def test_what_a_call_imports_first_is_not_counted_and_is_told(tmp_path: Path, clock: Clock) -> None:
    names = "takes_long", "takes_long_too"
    for name in names:
        (tmp_path / f"{name}.py").write_text(SLOW_MODULE)
    folder = str(tmp_path)

    def watch() -> None:
        for name in names:
            mark = tmp_path / f"{name}.begun"
            assert wait_for(mark.exists)
            assert clock.looked_at()
            clock.forward()
            assert clock.looked_at()
            mark.with_suffix(".over").touch()

    def lazy(completion: str) -> float:
        if folder not in sys.path:
            sys.path.insert(0, folder)
        import takes_long  # type: ignore[import-not-found]

        importlib.import_module("takes_long_too")
        return float(bool(takes_long))

    threading.Thread(target=watch, daemon=True).start()
    with Scorer([bound(lazy)], workers=1) as scorer:
        assert [one.score for one in scorer.score(completions("a", "b", "c"))["mine"]] == [1.0, 1.0, 1.0]


def test_an_import_does_not_give_a_call_that_hangs_more_time() -> None:
    def hangs(completion: str) -> float:
        import tabnanny  # noqa: F401

        time.sleep(PATIENCE)
        return 1.0

    (outcome,) = scores(hangs, "a", timeout=0.8)
    assert "longer than its time limit of 0.8 s" in str(outcome.reason)
