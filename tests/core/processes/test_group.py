"""What processes say to each other, by real ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import RUN

from grpo.core.processes.group import agreed, any_of, gathered, rows_of_all, wait

TOLD = """
import dataclasses, sys, time
from grpo.core.processes import group
from grpo.core.processes.group import ApartError, agreed, any_of, connect, gathered, rows_of_all, wait
from grpo.core.processes.rank import rank

connect(float(sys.argv[1]))
late = int(sys.argv[2])
found = (
    gathered({"rank": rank()}, "one"), rows_of_all([rank()] * rank(), "two"), any_of(rank() == 2, "three"),
    any_of(False, "four"), agreed(rank() + 7, "five"),
)
sys.stdout.write(f"{rank()}: {found}\\n")
wait("the first word")
group._connection = dataclasses.replace(group._connection, limit=10.0)
if rank() == late:
    time.sleep(15)
try:
    wait("the last word")
except ApartError as error:
    sys.stdout.write(f"{rank()} ends: {error}\\n")
"""


def test_a_process_alone_agrees_with_itself() -> None:
    wait("nobody")
    assert gathered(1, "it") == [1]
    assert rows_of_all([1, 2], "it") == [1, 2]
    assert any_of(True, "it")
    assert not any_of(False, "it")
    assert agreed("a", "it") == "a"


@pytest.mark.slow
def test_processes_agree_and_one_that_does_not_come_is_named(tmp_path: Path) -> None:
    program = tmp_path / "told.py"
    program.write_text(TOLD)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    done = subprocess.run(
        [*launcher, str(program), "60", "1"],
        capture_output=True,
        text=True,
        timeout=RUN,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    found = "([{'rank': 0}, {'rank': 1}, {'rank': 2}], [1, 2, 2], True, False, 7)"
    lines = done.stdout.splitlines()
    assert {f"{number}: {found}" for number in range(3)} <= {*lines}
    (first,) = [line for line in lines if line.startswith("0 ends")]
    assert first.startswith("0 ends: process 1 of 3 did not arrive within 10 s, while process 0 waited for the last")
    assert "failures.wait_limit" in first
