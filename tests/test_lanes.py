"""The lanes of the tests: each marker has one, and the guard of the fast lane lets no trainer or network through."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import durations
import pytest
from lanes import LANES, LONG, function_of, is_collected, is_in, lane, longest_first, unit_of

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


BROKEN = """
import pytest

def test_breaks_at_once():
    assert 1 == 2

def test_holds():
    pass

@pytest.mark.slow
@pytest.mark.parametrize("number", [3, 4])
def test_breaks_late(number):
    assert number == 4

@pytest.mark.core
def test_keeps_a_promise():
    pass
"""


@pytest.mark.slow
def test_a_lane_that_fails_keeps_no_other_from_running_and_the_end_says_all_that_failed(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").symlink_to(ROOT / "tests" / "conftest.py")
    (tmp_path / "test_broken.py").write_text(BROKEN, encoding="utf-8")
    where = ("-n0", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, tmp_path)
    done = run(
        ROOT / "tests" / "support" / "run_lanes.py", "fast", "core", "long", "--results", tmp_path / "results", *where
    )
    assert done.returncode == 1
    (end,) = re.findall("^==> (fast: .*)", done.stdout, re.MULTILINE)
    assert re.sub(r"\d+ s", "N s", end) == "fast: 1 failed in N s; core: passed in N s; long: 1 failed in N s"
    failed = [
        "FAILED in fast: test_broken.py::test_breaks_at_once",
        "FAILED in long: test_broken.py::test_breaks_late[3]",
    ]
    assert done.stdout.splitlines()[-2:] == failed
    assert (tmp_path / "results" / "failed.txt").read_text().splitlines() == failed


LISTING = """
import json

def pytest_collection_modifyitems(items):
    print("ITEMS " + json.dumps([(str(item.path), [mark.name for mark in item.iter_markers()]) for item in items]))
"""


@pytest.mark.nightly
def test_no_lane_leaves_out_a_file_that_it_needs(tmp_path: Path) -> None:
    """Without `--lane` every file is imported, in a lane only those in which its markers are written."""
    (tmp_path / "listing.py").write_text(LISTING, encoding="utf-8")
    options = ("--collect-only", "-q", "-p", "no:cacheprovider", "-p", "listing")
    done = run("-m", "pytest", *options, ROOT / "tests", PYTHONPATH=str(tmp_path))
    (listed,) = re.findall("^ITEMS (.*)$", done.stdout, re.MULTILINE)
    kinds = {(Path(file), frozenset(markers).intersection(LONG)) for file, markers in json.loads(listed)}
    assert len({file for file, _ in kinds}) > 100
    chosen = [(name,) for name in LANES] + [("fast", "core"), ("browser", "site")]
    needed = [(file, names) for file, markers in kinds for names in chosen if is_in({*markers}, names)]
    assert [(file, names) for file, names in needed if not is_collected(file, names)] == []


def test_a_test_is_fast_or_long_and_a_nightly_one_is_neither() -> None:
    assert is_in(set(), ("fast",))
    assert not is_in(set(), ("long",))
    assert not is_in(set(), ("core", "nightly"))
    assert is_in({"slow", "parametrize"}, ("long",))
    assert not is_in({"slow"}, ("fast", "core"))
    assert is_in({"slow", "core"}, ("fast", "core"))
    assert not is_in({"slow", "nightly"}, ("fast", "long", "slow"))
    assert is_in({"slow", "nightly"}, ("nightly",))


SHARED = """
import pytest

@pytest.fixture(scope="module")
def made():
    return object()

@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_shares(made, number): pass
"""


@pytest.mark.slow
def test_tests_that_share_a_fixture_of_their_module_run_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").symlink_to(ROOT / "tests" / "conftest.py")
    files = [tmp_path / f"test_{name}.py" for name in ("one", "two", "three")]
    for file in files:
        file.write_text(SHARED, encoding="utf-8")
    where = ("-v", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "--lane", "long")
    done = run("-m", "pytest", *where, "-n2", "--dist", "loadscope", "--no-loadscope-reorder", tmp_path)
    ran = re.findall(r"^\[(gw\d)\] .* PASSED \S*test_(\w+)\.py::", done.stdout, re.MULTILINE)
    assert len(ran) == 60, done.stdout
    assert len(set(ran)) == len(files)


CRASHING = """
import os
from pathlib import Path
import pytest
from patience import wait_for

HERE = Path(__file__).parent / os.environ["PYTEST_XDIST_WORKER"]

@pytest.mark.slow
def test_first():
    os._exit(1)

@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_later(number):
    HERE.touch()
    assert wait_for((HERE.parent / "gw2").exists)
"""


@pytest.mark.slow
def test_a_process_takes_the_place_of_one_that_crashed(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").symlink_to(ROOT / "tests" / "conftest.py")
    (tmp_path / "test_crash.py").write_text(CRASHING, encoding="utf-8")
    where = ("-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "--lane", "long")
    done = run(
        "-m", "pytest", *where, "-n2", "--dist", "loadscope", "--no-loadscope-reorder", "-k", "later or first", tmp_path
    )
    assert "20 passed" in done.stdout, done.stdout


def test_the_longest_tests_begin(request: pytest.FixtureRequest) -> None:
    items = request.session.items
    root, last = request.config.rootpath, function_of(items[-1].nodeid)
    ordered = longest_first(items, {last: 1e6})
    first = unit_of(ordered[0].nodeid, root)
    assert last in {function_of(item.nodeid) for item in ordered if unit_of(item.nodeid, root) == first}
    assert sorted(item.nodeid for item in ordered) == sorted(item.nodeid for item in items)
    assert longest_first(ordered, {last: 1e6}) == ordered


def test_a_lane_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(pytest.UsageError, match="no lane vlm; there are: fast, long, "):
        lane("vlm")
    assert lane("browser,site") == ("browser", "site")


def test_every_marker_takes_a_test_out_of_the_fast_lane() -> None:
    markers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    assert sorted(LONG) == sorted(marker.partition(":")[0] for marker in markers)


# Seconds of all tests that `make test` runs, as recorded on two cores: 473 took 274 s with collection and style, so
# that the whole stays below five minutes.
BUDGET = 500.0


def test_make_test_stays_within_its_budget() -> None:
    recorded = durations.read()
    spent = sum(recorded["fast"].values()) + sum(recorded["core"].values())
    assert spent < BUDGET, "mark fewer tests core, or make them cheaper: python tests/support/durations.py --lane core"


def test_the_recorded_durations_are_those_of_the_present_tests() -> None:
    defined = {
        f"{file.relative_to(ROOT)}::{name}"
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    recorded = durations.merged(durations.read()).keys()
    assert len(defined - recorded) < 0.1 * len(defined), "record them anew: make test-all RECORD=1"
