"""Loads libraries faster: without garbage collection and with faster lookups (lookups.py).

torch, transformers and TRL make a million objects that stay as long as the process. Python's collector looks at all of
them again and again: while they load, for a fifth of the time, and later whenever it looks for old garbage.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from grpo.core.processes.lookups import faster_lookups

LIBRARY = 100  # modules; fewer are no reason to leave what is there out of later collections


@contextmanager
def loading() -> Iterator[None]:
    """Switches garbage collection off inside, and excludes libraries loaded there from later ones. May be nested."""
    if not gc.isenabled():  # by an outer one, or somebody else's choice
        yield
        return
    before = len(sys.modules)
    gc.disable()
    try:
        with faster_lookups():
            yield
    finally:
        if len(sys.modules) - before >= LIBRARY:
            gc.freeze()
        gc.enable()
