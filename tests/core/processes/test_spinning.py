"""Idle OpenMP threads spin while processors are free and sleep while others want them: the switch, and the rule."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from grpo.core.processes.spinning import CALM, Rule

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux counts how long a thread waited")
MILLISECOND = 1_000_000

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
watch_processors()
watch_processors()
print(sum(thread.name == "grpo-spinning" for thread in threading.enumerate()))
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


def test_threads_that_waited_for_a_processor_stop_spinning_at_once_and_spin_again_when_it_was_calm_for_long() -> None:
    rule, ran, waited = Rule(), 0, 0
    decisions: list[bool | None] = []
    for part in [0.0, 0.3, *[0.001] * CALM, 0.02, *[0.0] * CALM]:
        ran, waited = ran + round(500 * MILLISECOND * (1 - part)), waited + round(500 * MILLISECOND * part)
        decisions.append(rule.wanted({1: (ran, waited)}))
    assert decisions == [None, True, *[None] * (CALM - 1), False, None, *[None] * (CALM - 1), False]


def test_threads_that_end_or_begin_and_idle_processes_decide_nothing() -> None:
    rule = Rule()
    rule.wanted({1: (10**10, 0), 2: (10**10, 10**9)})
    assert rule.wanted({1: (10**10 + MILLISECOND, MILLISECOND)}) is None  # too little to judge by; 2 has ended
    assert rule.wanted({1: (10**10 + 500 * MILLISECOND, MILLISECOND), 3: (MILLISECOND, 200 * MILLISECOND)}) is True
