"""A package that ends or holds the process that imports it is named, once tried and then remembered."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import environment_with
from installed_plugin import install
from patience import RUN

pytestmark = pytest.mark.slow
GOOD = """
from grpo import hookimpl, reward

@reward(version=1)
def fine(completion: str) -> float:
    return 1.0

@hookimpl
def grpo_rewards(): return [fine]
"""
CASES = {
    "os-exit": ("import os\n\nos._exit(3)", "ends the process by os._exit(3) (at site/os_exit.py:3)"),
    "exit-in-hook": (
        GOOD.replace("return [fine]", "import os; os._exit(0)"),
        "os._exit(0) (at site/exit_in_hook.py:9)",
    ),
    "abort": ("import os\nos.abort()", "ends the process, with signal 6 (at site/abort.py:2)"),
    "kill": ("import os\nos.kill(os.getpid(), 9)", "ends the process, with signal 9"),
    "crash": ("import ctypes\nctypes.string_at(0)", "ends the process, with signal 11"),
    "replaced": ("import os, sys\nos.execv(sys.executable, ['python', '-c', 'pass'])", "with exit code 0"),
    "ctrl-c": (
        "raise KeyboardInterrupt('mine')",
        "raises what Ctrl-C raises, which ends every command: Keyboard",
    ),
    "ctrl-c-in-hook": (GOOD.replace("return [fine]", "raise KeyboardInterrupt"), "raises what Ctrl-C raises"),
    "quits": ("raise SystemExit(4)", "SystemExit: 4 (at site/quits.py:1)"),
    "unprintable": ("class E(Exception):\n    def __str__(self): raise KeyboardInterrupt\nraise E", "E: (its message"),
    "unrepresentable": ("class E(Exception):\n    __str__ = __repr__ = lambda s: 1\nraise E(1)", "E: (its message"),
    "odd-str": (
        "class S(str):\n    def split(self): raise SystemExit\n    def __getitem__(self, at): raise SystemExit\n"
        "class E(Exception):\n    def __str__(self): return S('so')\nraise E",
        "E: so (at site/odd_str.py:6)",
    ),
    "odd-class": (
        "class M(type):\n    def __getattribute__(cls, name): raise SystemExit(8)\n"
        "class E(BaseException, metaclass=M):\n    def __getattribute__(self, name): raise KeyboardInterrupt\n"
        "raise E('x')",
        "E: x",
    ),
    "odd-import-error": (
        "class N:\n    def __str__(self): raise KeyboardInterrupt\nraise ImportError('x', name=N())",
        "ImportError: x (at site/odd_import_error.py:3)",
    ),
    "long": ("raise ValueError('x' * 10**7)", "ValueError: xxx"),
}
HANGS = {
    "sleeps": ("import time\n\ntime.sleep(1000)", "site/sleeps.py:3"),
    "spins": ("while True: pass", "site/spins.py:1"),
    "deaf": ("import signal, threading\nthreading.Lock().acquire()\nl = threading.Lock()\nl.acquire()\n"
             "signal.signal(15, signal.SIG_IGN)\nl.acquire()", "site/deaf.py:6"),
}  # fmt: skip


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


def command(site: Path, *arguments: str, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
    names = ",".join(path.name.split("-")[0].replace("_", "-") for path in site.glob("*.dist-info"))
    cache = str(site.parent / "cache")
    environment = environment_with(site, GRPO_PLUGINS=names, GRPO_CACHE=cache, GRPO_PROBE_SECONDS=str(seconds))
    whole = [sys.executable, "-m", "grpo", "plugins", *arguments]
    return subprocess.run(whole, env=environment, capture_output=True, text=True, timeout=RUN, check=False)


def listing(site: Path, *arguments: str, seconds: float = 120.0) -> dict[str, Any]:
    done = command(site, "--json", *arguments, seconds=seconds)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def lines(found: dict[str, Any]) -> dict[str, str]:
    return {problem["distribution"]: problem["line"] for problem in found["problems"]}


def test_whatever_ends_the_process_is_named_and_the_others_are_listed(site: Path) -> None:
    for name, (source, _) in CASES.items():
        install(site, name, source)
    install(site, "zz-good", GOOD)
    for _ in range(2):
        found = listing(site)
        named = [(plugin["distribution"], plugin["name"]) for plugin in found["plugins"]]
        assert [pair for pair in named if pair[0] != "grpo-kit"] == [("zz-good", "fine")]
        told = lines(found)
        assert set(told) == set(CASES)
        for name, (_, words) in CASES.items():
            assert words in told[name], name
        assert {problem["state"] for problem in found["problems"]} == {"broken"}
        assert max(map(len, told.values())) < 3000
    assert "os._exit(3)" in command(site).stdout


def test_what_hangs_is_named_once_tried_and_then_remembered(site: Path) -> None:
    for name, (source, _) in HANGS.items():
        install(site, name, source)
    first = command(site, seconds=1.0)
    assert "Trying in a process of its own, once, whether 'main' of" not in first.stdout
    assert first.returncode == 0
    told = lines(listing(site, seconds=3600.0))  # tried again, they would outlast the patience of `command`
    for name, (_, place) in HANGS.items():
        assert f"it does not finish loading: after 1 s it was still at it (at {place})" in told[name]
        assert "GRPO_PROBE_SECONDS=6 grpo plugins --again" in told[name]


def test_a_package_is_tried_anew_when_it_changes_and_when_that_is_asked_for(site: Path) -> None:
    once = "import os\nfrom pathlib import Path\nflag = Path(__file__).with_suffix('.flag')\n"
    once += "first = not flag.exists()\nflag.touch()\nif first: os._exit(7)\n"
    install(site, "flaky", once + GOOD)
    install(site, "mended", "import os\nos._exit(5)")
    assert set(lines(listing(site))) == {"flaky", "mended"}
    assert set(lines(listing(site))) == {"flaky", "mended"}
    (site / "mended.py").write_text(GOOD.replace("fine", "well"))
    assert set(lines(listing(site))) == {"flaky"}
    assert lines(listing(site, "--again")) == {}
    assert lines(listing(site)) == {}


def test_a_package_that_is_well_is_imported_in_one_child_once(site: Path) -> None:
    counts = f"with open({str(site / 'count')!r}, 'a') as f: f.write('x')\n"
    install(site, "counted", counts + GOOD)
    for imports in (2, 3, 4):  # the first time in the child, too
        assert lines(listing(site)) == {}
        assert (site / "count").read_text() == "x" * imports


def test_without_a_place_to_remember_it_works_all_the_same(site: Path) -> None:
    install(site, "os-exit", CASES["os-exit"][0])
    (site.parent / "cache").write_text("a file where a folder should be")
    assert "os._exit(3)" in lines(listing(site))["os-exit"]
    (site.parent / "cache").unlink()
    (site.parent / "cache").mkdir()
    (site.parent / "cache" / "plugins.txt").write_bytes(b"\xff no such line\n\n" + b"x" * 100 + b"\n")
    assert "os._exit(3)" in lines(listing(site))["os-exit"]


def test_a_plugin_that_looks_for_plugins_starts_no_children_of_its_own(site: Path) -> None:
    install(site, "looking", "from grpo import Host\nHost.discover()\n" + GOOD)
    assert [problem["line"] for problem in listing(site)["problems"]] == []


def test_a_limit_that_is_none_is_refused(site: Path) -> None:
    install(site, "fine", GOOD)
    cache = str(site.parent / "cache")
    environment = environment_with(site, GRPO_PLUGINS="fine", GRPO_CACHE=cache, GRPO_PROBE_SECONDS="soon")
    whole = [sys.executable, "-m", "grpo", "plugins"]
    done = subprocess.run(whole, env=environment, capture_output=True, text=True, timeout=RUN, check=False)
    assert (done.returncode, "GRPO_PROBE_SECONDS='soon' must be a number of seconds above 0" in done.stderr) == (
        2,
        True,
    )


def test_an_edit_that_keeps_the_size_of_a_file_is_tried_again(site: Path) -> None:
    install(site, "edited", "import os\nos._exit(3)\n")
    assert "ends the process" in lines(listing(site))["edited"]
    shutil.rmtree(site / "__pycache__", ignore_errors=True)  # Python takes it for this one's, by second and size
    install(site, "edited", "import os\nos.getpid()\n")
    assert "ends the process" not in lines(listing(site)).get("edited", "")
