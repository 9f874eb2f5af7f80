"""Memory that was freed is used again: counted in pages that the system had to hand out."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
from grpo.core.processes.memory import give_back_freed_memory, keep_freed_memory

if "keep" in sys.argv:
    keep_freed_memory()

def faults(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        block = bytearray(b"x") * (12 * 2**20)
        other = bytearray(b"y") * (12 * 2**20)
        del block, other
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

faults(3)
print(faults(10))
held = resident()
give_back_freed_memory()
print(held - resident())
"""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is of Linux")


def counted(*arguments: str, **variables: str) -> tuple[int, int]:
    """Page faults of 20 blocks of 12 MiB, and pages that were given back in the end."""
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, *arguments], env=variables, capture_output=True, text=True, check=True
    )
    faults, back = done.stdout.split()
    return int(faults), int(back)


def test_blocks_that_were_freed_are_used_again_and_given_back_in_the_end() -> None:
    plain, _ = counted(MALLOC_MMAP_THRESHOLD_="1000000")  # as it would be before the C library adapts
    kept, back = counted("keep")
    assert plain > 20 * 2000
    assert kept < plain / 20
    assert back > 2 * 3000 * 0.9


def test_what_somebody_set_for_the_c_library_stays() -> None:
    faults, _ = counted("keep", MALLOC_MMAP_THRESHOLD_="1000000")
    assert faults > 20 * 2000
