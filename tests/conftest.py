"""Selects the tests of a lane, skips those that lack something, and holds the fixtures that all packages' tests share.

`tests/support/lanes.py` says which lanes there are. `pytest --lane=fast` is also guarded: a test that loads the trainer
or reaches for another machine fails (`fast_lane/sitecustomize.py`).
Where something is missing (NEEDS), one test stands for all that need it: it is skipped, says how many they are and what
to install, and the others are deselected. With the variable of the need set, all of them run and fail instead.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from durations import DurationRecorder
from durations import merged as merged_durations
from durations import read as read_durations
from filelock import FileLock
from lanes import UnitScheduling, is_collected, is_in, lane, longest_first

REAL_MODEL = "SmolLM2-135M-Instruct"
GUARD = Path(__file__).resolve().parent / "fast_lane" / "sitecustomize.py"
DATA = Path(os.environ.get("GRPO_TEST_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
BROKEN = pytest.StashKey[list[str]]()
LANE = pytest.StashKey[tuple[str, ...]]()
CACHE = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--lane", help="run the tests of one lane (tests/support/lanes.py): fast, long, core, nightly, markers"
    )
    parser.addoption(
        "--durations-to", metavar="FILE", help="add the seconds of each test to a file (tests/support/durations.py)"
    )


def pytest_configure(config: pytest.Config) -> None:
    if name := config.getoption("--lane"):
        config.stash[LANE] = lane(name)
    if (durations := config.getoption("--durations-to")) and not hasattr(config, "workerinput"):
        if not name:
            raise pytest.UsageError("--durations-to records a lane; name it with --lane")
        config.pluginmanager.register(DurationRecorder(Path(durations), name))
    if "GRPO_CACHE" not in os.environ:  # what is remembered of plugins, here and in what the tests start
        config.stash[CACHE] = tempfile.TemporaryDirectory(prefix="grpo-cache-")
        os.environ["GRPO_CACHE"] = config.stash[CACHE].name
    # nohup ignores the one and a shell's background the other, which what the tests start would inherit.
    for number, handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)
    if name == "fast":
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(GUARD.parent), os.environ.get("PYTHONPATH")]))
        config.stash[BROKEN] = guarded()


def pytest_unconfigure(config: pytest.Config) -> None:
    if CACHE in config.stash:
        config.stash[CACHE].cleanup()
        del os.environ["GRPO_CACHE"]


@dataclass(frozen=True, slots=True)
class Need:
    """What some tests need: whether a test does, what to do where it is missing (else None), and the variable."""

    of: Callable[[pytest.Item], bool]
    missing: Callable[[], str | None]
    required: str


def _data() -> str | None:
    return None if DATA.is_dir() else f"no data at {DATA}; set GRPO_TEST_DATA to the folder with gsm8k/ and cases/"


def _engine() -> str | None:
    from grpo.plugins.errors import SandboxUnavailable
    from grpo.rewards.sandbox.docker_pool import connected

    try:
        connected("").close()
    except SandboxUnavailable as error:
        return f"{error} On Debian and Ubuntu: apt install docker.io"
    return None


def _vllm() -> str | None:
    from grpo.core.rollout.engine.release import refuse_missing_vllm
    from grpo.plugins.errors import UsageError

    try:
        refuse_missing_vllm()
    except UsageError as error:
        return f"{error} (in a checkout: make vllm)"
    return None


def _reasoning_gym() -> str | None:
    if importlib.util.find_spec("reasoning_gym") is not None:
        return None
    return "reasoning-gym is not installed; in a checkout: make reasoning-gym (it needs a C compiler)"


def _deepspeed() -> str | None:
    if importlib.util.find_spec("deepspeed") is not None:
        return None
    return "DeepSpeed is not installed; in a checkout: make deepspeed"


def _ray() -> str | None:
    return None if importlib.util.find_spec("ray") is not None else "Ray is not installed; in a checkout: make ray"


def _trackers() -> str | None:
    missing = [name for name in ("wandb", "mlflow", "opentelemetry") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)} not installed; in a checkout: make trackers" if missing else None


def _mcp() -> str | None:
    missing = [name for name in ("mcp", "mcp_server_time", "mcp_server_git") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(missing)} not installed; in a checkout: make mcp" if missing else None


def real_model_path() -> Path:
    """Returns the folder of the real chat model."""
    return Path(os.environ.get("GRPO_TEST_MODEL", Path(__file__).resolve().parents[1] / ".real-model" / REAL_MODEL))


def _real_model() -> str | None:
    place = real_model_path()
    return None if (place / "config.json").is_file() else f"no {REAL_MODEL} at {place}; in a checkout: make real-model"


def _browser() -> str | None:
    if importlib.util.find_spec("playwright") is None:
        return "Playwright is not installed; in a checkout: make browser"
    return None if shutil.which("chromium") else "there is no Chromium; on Debian: apt install chromium"


def _firefox() -> str | None:
    found = any(map(shutil.which, ("firefox-esr", "firefox")))
    return None if found else "there is no Firefox; on Debian: apt install firefox-esr"


def _site() -> str | None:
    missing = [name for name in ("sphinx", "myst_parser", "furo") if importlib.util.find_spec(name) is None]
    return f"{', '.join(missing)} not installed; in a checkout: make docs" if missing else None


def _triton() -> str | None:
    if importlib.util.find_spec("triton") is not None:
        return None
    return "triton is missing; it comes with CUDA builds of torch and with vLLM (in a checkout: make vllm)"


def _uses(fixture: str) -> Callable[[pytest.Item], bool]:
    return lambda item: fixture in getattr(item, "fixturenames", ())


def _marked(marker: str) -> Callable[[pytest.Item], bool]:
    return lambda item: item.get_closest_marker(marker) is not None


def _in_containers(item: pytest.Item) -> bool:
    return _uses("engine")(item) or "docker" in getattr(getattr(item, "callspec", None), "params", {}).values()


NEEDS = (
    Need(_uses("shared_data"), _data, "GRPO_REQUIRE_DATA"),
    Need(_in_containers, _engine, "GRPO_REQUIRE_DOCKER"),
    Need(_marked("reasoning_gym"), _reasoning_gym, "GRPO_REQUIRE_REASONING_GYM"),
    Need(_marked("deepspeed"), _deepspeed, "GRPO_REQUIRE_DEEPSPEED"),
    Need(_marked("ray"), _ray, "GRPO_REQUIRE_RAY"),
    Need(_marked("trackers"), _trackers, "GRPO_REQUIRE_TRACKERS"),
    Need(_marked("mcp"), _mcp, "GRPO_REQUIRE_MCP"),
    Need(_marked("browser"), _browser, "GRPO_REQUIRE_BROWSER"),
    Need(_uses("firefox"), _firefox, "GRPO_REQUIRE_FIREFOX"),
    Need(_marked("site"), _site, "GRPO_REQUIRE_SITE"),
    Need(_marked("vllm"), _vllm, "GRPO_REQUIRE_VLLM"),
    Need(_marked("triton"), _triton, "GRPO_REQUIRE_TRITON"),
    Need(_marked("real_model"), _real_model, "GRPO_REQUIRE_REAL_MODEL"),
)


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    names = config.stash.get(LANE, None)
    lanes = names or ("fast", "long")
    selected = [item for item in items if is_in({marker.name for marker in item.iter_markers()}, lanes)]
    config.hook.pytest_deselected(items=list(set(items).difference(selected)))
    items[:] = selected
    for need in NEEDS:
        needing = [] if os.environ.get(need.required) else [item for item in items if need.of(item)]
        words = need.missing() if needing else None
        if words is not None:
            needing[0].add_marker(pytest.mark.skip(reason=f"for {len(needing)} tests: {words}"))
            others = set(needing[1:])
            items[:] = [item for item in items if item not in others]
            config.hook.pytest_deselected(items=needing[1:])
    if names and names != ("fast",):
        items[:] = longest_first(items, merged_durations(read_durations()))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    names = config.stash.get(LANE, None)
    needless = names is not None and collection_path.is_file() and not is_collected(collection_path, names)
    return True if needless else None


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> UnitScheduling | None:
    return UnitScheduling(config, log) if config.getoption("dist") == "loadscope" else None


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


@pytest.fixture(scope="session")
def real_model() -> Path:
    """The folder of a real chat model; the tests that use it are marked real_model."""
    return real_model_path()


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

    Without it this is reached only where GRPO_REQUIRE_DATA is set, and fails.
    """
    if (words := _data()) is not None:
        pytest.fail(words)
    return DATA


@pytest.fixture(scope="session")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], dict[str, str]]:
    """Gives the environment variables of a Python that finds the packages of a file first, and then those of this one.

    They are installed as the file pins them, without their dependencies, once for all processes of a session. Without a
    package index the test is skipped, or fails when GRPO_REQUIRE_INDEX is set.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def installed(packages: Path) -> dict[str, str]:
        folder = shared / f"beside-{packages.stem}"
        with FileLock(f"{folder}.lock"):
            if not folder.is_dir():
                install(packages, folder)
        return {**os.environ, "PYTHONPATH": str(folder)}

    def install(packages: Path, folder: Path) -> None:
        part = folder.with_suffix(".part")
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--root-user-action=ignore"]
        where = ["--no-deps", "--no-compile", "--target", str(part), "-r", str(packages)]
        done = subprocess.run([*pip, *where], capture_output=True, text=True, timeout=900, check=False)
        offline = "No matching distribution" in done.stderr or "Failed to establish a new connection" in done.stderr
        if offline and not os.environ.get("GRPO_REQUIRE_INDEX"):
            pytest.skip("pip reaches no package index from which to install what this test needs beside the others")
        assert done.returncode == 0, done.stderr
        part.rename(folder)

    return installed
