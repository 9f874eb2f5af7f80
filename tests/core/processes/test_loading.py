"""Libraries load without garbage collection, and what they made is left out of later ones."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import gc, importlib.metadata, sys
from grpo.core.processes.loading import LIBRARY, loading

lookup = importlib.metadata.packages_distributions
before = len(sys.modules)
with loading():
    print(gc.isenabled(), importlib.metadata.packages_distributions is lookup)
    with loading():
        import sympy, unittest.mock
    print(gc.isenabled(), gc.get_freeze_count())
assert len(sys.modules) - before > LIBRARY
frozen = gc.get_freeze_count()
print(gc.isenabled(), importlib.metadata.packages_distributions is lookup, frozen > 1000)
kept = [[] for _ in range(5000)]
try:
    with loading():
        raise ValueError
except ValueError:
    print(gc.isenabled(), gc.get_freeze_count() <= frozen)
gc.disable()
with loading():
    pass
print(gc.isenabled())
"""


def test_garbage_is_not_collected_while_libraries_load_and_theirs_never_again() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "False False",
        "False 0",
        "True True True",
        "True True",
        "False",
    ]
