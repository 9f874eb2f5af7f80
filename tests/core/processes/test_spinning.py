"""Idle OpenMP threads spin while processors are free and sleep while others want them: the switch, and the rule."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from grpo.core.processes.spinning import LOOK, Rule, busy_seconds

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux counts what processors do")

SWITCH = """
import time
from pathlib import Path
import torch
from grpo.core.processes.spinning import Spinning, _libgomp

def comes_to(states, tries=600):
    for _ in range(tries):
        torch.ones(1 << 18).exp_()
        time.sleep(0.1)
        stats = [file.read_text().rpartition(")")[2].split()[0] for file in Path("/proc/self/task").glob("[0-9]*/stat")]
        if stats.count("R") == states:
            return True
    return False

torch.set_num_threads(2)
spinning = Spinning(_libgomp())
print(comes_to(2), spinning.off)
spinning.turn_off()
spinning.turn_off()
print(comes_to(1), spinning.off)
spinning.turn_on()
print(comes_to(2), spinning.off)
"""
WATCHED = """
import threading
import torch
from grpo.core.processes.spinning import watch_processors

torch.ones(1 << 18).exp_()
watch_processors(2)
watch_processors(2)
print(sum(thread.name == "grpo-spinning" for thread in threading.enumerate()))
"""
PHASES = """
import os
import torch
from grpo.core.processes import spinning
from grpo.core.processes.spinning import LOOK, Spinning, Watch, beside_workers

class Known(Watch):
    spent = 0.0, 0.0, 0.0

    def _spent(self):
        return self.spent

switch = Spinning(spinning._libgomp())
watch = Known(switch, threads=2)
spinning._watches.append(watch)
every = len(os.sched_getaffinity(0)) * LOOK
with beside_workers():
    watch.spent = every, 0.0, LOOK  # they take all processors,
    watch.look()
    watch.spent = 2 * every, 0.0, 2 * LOOK
    watch.look()
    print(switch.off)
print(switch.off)
watch.spent = 2 * every, 0.0, 3 * LOOK  # and rest while the run learns
watch.look()
print(switch.off)
with beside_workers():
    print(switch.off)
"""


def printed(code: str, **variables: str) -> str:
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "2", **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


@linux
@pytest.mark.slow
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor has nothing to spin beside")
def test_threads_that_wait_sleep_while_spinning_is_off_and_spin_while_it_is_on() -> None:
    lines = printed(SWITCH, GOMP_SPINCOUNT="infinite").splitlines()
    if lines[0].startswith("False"):
        pytest.skip("this torch brings another OpenMP, or none")
    assert lines == ["True False", "True True", "True False"]


@linux
@pytest.mark.slow
def test_a_process_is_watched_once_and_not_where_somebody_chose_how_threads_wait() -> None:
    assert printed(WATCHED, GOMP_SPINCOUNT="2000") == "1\n"
    assert printed(WATCHED, GOMP_SPINCOUNT="0") == "0\n"


def decisions(rule: Rule, taken: list[float], own: float = 1.7, looks: int = 1) -> list[bool]:
    """Returns whether a rule finds the processors wanted while others take these shares; `looks`: for each decision."""
    wanted = []
    for part in taken:
        for _ in range(looks):
            seconds = LOOK / looks
            rule.add(busy=seconds * (own + part), own=seconds * own, seconds=seconds)
        wanted.append(rule.wanted)
    return wanted


def test_threads_sleep_soon_beside_a_busy_program_and_spin_again_soon_after_it() -> None:
    beside = decisions(Rule(threads=2, processors=2), [*[0.8] * 8, *[0.0] * 8])
    assert not beside[0]
    assert beside[4:8] == [True] * 4
    assert beside[-1:] == [False]
    assert beside[8], "it may go on after a pause"


def test_little_work_of_others_is_no_reason_to_sleep_however_it_is_spread() -> None:
    steady, bursts = [0.3] * 24, [0.8, 0.0, 0.0, 0.0, 0.0, 0.0] * 4
    assert decisions(Rule(threads=2, processors=2), steady) == [False] * 24
    assert decisions(Rule(threads=2, processors=2), bursts) == [False] * 24
    half = decisions(Rule(threads=2, processors=2), [1.0, 1.0, 0.0, 0.0] * 8)
    assert half[-8:] == [True] * 8, "programs that work half of the time"


def test_short_looks_count_together() -> None:
    assert decisions(Rule(threads=2, processors=2), [2.5, 0.0], looks=4) == [True, True]
    rule = Rule(threads=2, processors=2)
    rule.add(busy=LOOK, own=0.0, seconds=0.2 * LOOK)  # more than all, but for too short a time to judge
    assert not rule.wanted


def test_others_may_have_the_processors_that_the_threads_leave_free() -> None:
    assert decisions(Rule(threads=4, processors=8), [3.9] * 9, own=4.0)[-1:] == [False]
    assert decisions(Rule(threads=4, processors=8), [5.9] * 9, own=2.0)[-1:] == [True]
    assert decisions(Rule(threads=8, processors=4), [0.1] * 9, own=2.9)[-1:] == [False]  # more threads than processors


@linux
@pytest.mark.slow
def test_what_passes_beside_the_runs_own_workers_is_judged_apart() -> None:
    if printed(WATCHED, GOMP_SPINCOUNT="2000") == "0\n":
        pytest.skip("this torch brings another OpenMP, or none")
    assert printed(PHASES).split() == ["True", "False", "False", "True"]


@linux
def test_what_the_processors_did_grows_and_is_that_of_the_chosen_ones() -> None:
    here = os.sched_getaffinity(0)
    assert busy_seconds(()) == 0
    assert 0 < busy_seconds({min(here)}) <= busy_seconds(here)
