"""Configures this process for a CPU: spinning threads, large pages, reuse of freed memory.

Taken from the kernel page by page, a large tensor costs more than adding two; a step makes the same ones over and over.
"""

from __future__ import annotations

import ctypes
import os
import sys

BEFORE_TORCH = {
    "OMP_WAIT_POLICY": "PASSIVE",  # idle threads that spin starve whoever shares the cores: up to ten times slower
    "GOMP_SPINCOUNT": "2000",  # about 0.03 ms, in which most work comes, while processors are free (spinning.py)
    "THP_MEM_ALLOC_ENABLE": "1",  # torch asks for pages of 2 MiB
}  # variables that torch reads when it loads
OWN_CHOICE = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # of mallopt(3)
LARGEST = 32 * 2**20  # bytes, what glibc takes for MMAP_THRESHOLD at most


def keep_freed_memory() -> None:
    """Makes glibc keep freed blocks of up to 32 MiB for reuse, unless its own variables are set."""
    if not sys.platform.startswith("linux") or any(name in os.environ for name in OWN_CHOICE):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGEST)
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
        mallopt(TOP_PAD, 2 * LARGEST)


def give_back_freed_memory() -> None:
    """Returns the C library's freed blocks to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform.startswith("linux") else None
    if trim is not None:
        trim(0)
