"""The lanes of the tests: each marker has one, and the guard of the fast lane lets no trainer or network through."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
GUARD = ROOT / "tests" / "fast_lane"
SAMPLES = """
import contextlib, socket, subprocess, sys
import pytest

def test_works_on_this_machine():
    with socket.socket() as one, socket.socket() as other:
        one.bind(("localhost", 0))
        one.listen()
        other.connect(one.getsockname())

def test_swallows_what_the_guard_says():
    with contextlib.suppress(Exception):
        import trl

def test_starts_a_process_that_trains():
    subprocess.run([sys.executable, "-c", "import trl"], check=True)

@pytest.mark.slow
def test_trains():
    import trl
"""


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    whole = {**os.environ, "PYTEST_ADDOPTS": "", **environment}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, env=whole)


@pytest.mark.parametrize(
    ("statement", "refused"),
    [
        ("import trl", "loads trl"),
        ("import socket; socket.create_connection(('192.0.2.1', 80))", "asks for the address of '192.0.2.1'"),
        ("import socket; socket.socket().connect(('192.0.2.1', 80))", "connects to 192.0.2.1"),
        ("import socket; socket.getaddrinfo('localhost', 80)", ""),
        ("import urllib.request; urllib.request.urlopen('http://example.invalid')", "the address of 'example.invalid'"),
    ],
    ids=["trl", "a connection", "a socket", "this machine", "a page"],
)
def test_a_python_of_the_fast_lane_loads_no_trainer_and_reaches_no_other_machine(statement: str, refused: str) -> None:
    done = run("-c", statement, PYTHONPATH=str(GUARD))
    assert bool(done.returncode) is bool(refused)
    assert refused in done.stderr


@pytest.mark.slow
def test_a_test_of_the_fast_lane_that_trains_fails_even_where_it_swallows_the_error(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").symlink_to(ROOT / "tests" / "conftest.py")
    (tmp_path / "test_samples.py").write_text(SAMPLES, encoding="utf-8")
    options = ("-q", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "--lane", "fast")
    done = run("-m", "pytest", *options, tmp_path)
    assert re.search("^ERROR .*swallows_what_the_guard_says", done.stdout, re.MULTILINE)
    assert re.search("^FAILED .*starts_a_process_that_trains", done.stdout, re.MULTILINE)
    assert done.stdout.splitlines()[-1].startswith("1 failed, 2 passed, 1 deselected, 1 error")


NEEDY = """
import pytest

@pytest.mark.parametrize("city", ["Aba", "Bath", "Cork", "Delft", "Enna"])
def test_reads_data(shared_data, city):
    assert shared_data.is_dir()

def test_needs_nothing():
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "environment", "end"),
    [
        ((), {}, "1 passed, 1 skipped, 4 deselected"),
        (("-k", "Cork or needs_nothing"), {}, "1 passed, 1 skipped, 4 deselected"),
        ((), {"GRPO_REQUIRE_DATA": "1"}, "1 passed, 5 errors"),
    ],
    ids=["a fresh machine", "some of them", "CI"],
)
def test_one_skip_stands_for_all_tests_that_lack_the_same(
    options: tuple[str, ...], environment: dict[str, str], end: str, tmp_path: Path
) -> None:
    (tmp_path / "conftest.py").symlink_to(ROOT / "tests" / "conftest.py")
    (tmp_path / "test_needy.py").write_text(NEEDY, encoding="utf-8")
    where = ("-q", "-rs", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path)
    environment = {"GRPO_TEST_DATA": str(tmp_path / "nowhere"), "GRPO_REQUIRE_DATA": "", **environment}
    done = run("-m", "pytest", *where, *options, tmp_path, **environment)
    assert done.stdout.splitlines()[-1].startswith(end), done.stdout
    if not environment["GRPO_REQUIRE_DATA"]:
        assert f"for {1 if options else 5} tests: no data at {tmp_path / 'nowhere'}; set GRPO_TEST_DATA" in done.stdout


def test_every_marker_takes_a_test_out_of_the_fast_lane(pytestconfig: pytest.Config) -> None:
    markers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    conftest = pytestconfig.pluginmanager.get_plugin(str(ROOT / "tests" / "conftest.py"))
    assert sorted(conftest.LONG) == sorted(marker.partition(":")[0] for marker in markers)
