"""The lanes of the tests, and fixtures that every package's tests share.

`pytest --lane fast` runs what neither trains, serves, installs nor takes long, and holds it to that: a test that loads
the trainer or reaches for another machine fails (`fast_lane/sitecustomize.py`). `pytest --lane long` runs the others.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# A test with one of these markers is in the long lane.
LONG = ("slow", "install", "reasoning_gym", "vllm", "triton")
GUARD = Path(__file__).resolve().parent / "fast_lane" / "sitecustomize.py"
BROKEN = pytest.StashKey[list[str]]()
CACHE = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lane", choices=("fast", "long"), help="run the tests of one lane; all without it")


def pytest_configure(config: pytest.Config) -> None:
    if "GRPO_CACHE" not in os.environ:  # what is remembered of plugins, here and in what the tests start
        config.stash[CACHE] = tempfile.TemporaryDirectory(prefix="grpo-cache-")
        os.environ["GRPO_CACHE"] = config.stash[CACHE].name
    if config.getoption("--lane") == "fast":
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(GUARD.parent), os.environ.get("PYTHONPATH")]))
        config.stash[BROKEN] = guarded()


def pytest_unconfigure(config: pytest.Config) -> None:
    if CACHE in config.stash:
        config.stash[CACHE].cleanup()
        del os.environ["GRPO_CACHE"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    lane = config.getoption("--lane")
    if lane:
        fast, long = [], []
        for item in items:
            (long if any(map(item.get_closest_marker, LONG)) else fast).append(item)
        items[:], others = (fast, long) if lane == "fast" else (long, fast)
        config.hook.pytest_deselected(items=others)


def guarded() -> list[str]:
    """Puts this process under the guard of the fast lane; returns the list in which the guard notes what it refused."""
    guard = sys.modules.get("sitecustomize")
    if getattr(guard, "__file__", None) != str(GUARD):  # else Python loaded it by itself, as in xdist's processes
        spec = importlib.util.spec_from_file_location("sitecustomize", GUARD)
        assert spec is not None
        assert spec.loader is not None
        guard = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(guard)
    broken: list[str] = guard.broken
    return broken


@pytest.fixture(autouse=True)
def _fast_lane(pytestconfig: pytest.Config) -> Iterator[None]:
    """Fails a test of the fast lane that swallowed the guard's error."""
    broken = pytestconfig.stash.get(BROKEN, [])
    broken.clear()
    yield
    assert broken == [], "a test of the fast lane does none of this; mark it: @pytest.mark.slow"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real data sets and recorded cases: $GRPO_TEST_DATA, else ../shared/data beside the checkout.

    Without it the test is skipped, or fails when GRPO_REQUIRE_DATA is set.
    """
    root = Path(__file__).resolve().parent.parent
    folder = Path(os.environ.get("GRPO_TEST_DATA", root.parent / "shared" / "data"))
    if not folder.is_dir():
        message = f"no data at {folder}; set GRPO_TEST_DATA to the folder with gsm8k/ and cases/"
        if os.environ.get("GRPO_REQUIRE_DATA"):
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture(scope="session")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], dict[str, str]]:
    """Gives the environment variables of a Python that finds the packages of a file first, and then those of this one.

    They are installed as the file pins them, without their dependencies. Without a package index the test is skipped,
    or fails when GRPO_REQUIRE_INDEX is set.
    """

    def installed(packages: Path) -> dict[str, str]:
        folder = tmp_path_factory.mktemp(packages.stem)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--root-user-action=ignore"]
        where = ["--no-deps", "--no-compile", "--target", str(folder), "-r", str(packages)]
        done = subprocess.run([*pip, *where], capture_output=True, text=True, timeout=900, check=False)
        offline = "No matching distribution" in done.stderr or "Failed to establish a new connection" in done.stderr
        if offline and not os.environ.get("GRPO_REQUIRE_INDEX"):
            pytest.skip("needs a package index")
        assert done.returncode == 0, done.stderr
        return {**os.environ, "PYTHONPATH": str(folder)}

    return installed
