"""Real distributions, built and installed: ours beside strangers' ones, as wheels and editable.

Each build works on a copy of the checkout, and no build needs the network: the virtual environments see the
dependencies that are installed beside pytest through a path file, and their own site-packages comes first.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo.core.scaffold.package import EXAMPLE, distribution_of

pytestmark = pytest.mark.install

ROOT = Path(__file__).resolve().parents[2]
OURS = ("pyproject.toml", "README.md", "LICENSE", "src", "core", "plugins", "rewards", "envs", "kernels", "examples")
EXAMPLES = (*(distribution_of(kind, name) for kind, name in EXAMPLE.items()), "grpo-env-chores")
FAULTY = ("grpo-test-broken", "grpo-test-clash", "grpo-test-exits", "grpo-test-misspelt")
UNWANTED = shutil.ignore_patterns("__pycache__", "*.egg-info", ".pytest_cache", ".mypy_cache", "build")


def command(*arguments: object, cwd: Path | None = None) -> str:
    """Runs a command without our own variables and returns its stdout; a failure shows all that it said."""
    environment = {name: value for name, value in os.environ.items() if name not in ("GRPO_PLUGINS", "PYTHONPATH")}
    done = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=cwd,
        env={**environment, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, arguments))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of each project: "ours", the examples and the faulty packages."""
    folder = tmp_path_factory.mktemp("sources")
    ours = folder / "ours"
    ours.mkdir()
    for name in OURS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, ours / name, symlinks=True, ignore=UNWANTED)
        else:
            shutil.copy2(ROOT / name, ours / name)
    for name in EXAMPLES:
        shutil.copytree(ROOT / "examples" / name, folder / name, ignore=UNWANTED)
    for name in FAULTY:
        shutil.copytree(Path(__file__).parent / "packages" / name, folder / name, ignore=UNWANTED)
    return folder


@pytest.fixture(scope="module")
def wheels(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of every project by its distribution name; ours is built from our sdist."""
    folder = tmp_path_factory.mktemp("wheels")
    command(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", folder, sources / "ours")
    [sdist] = folder.glob("*.tar.gz")
    others = [sources / name for name in (*EXAMPLES, *FAULTY)]
    pip_wheel = ("-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation", "-q", "-w", folder)
    command(sys.executable, *pip_wheel, sdist, *others)
    found = {path.name.split("-")[0].replace("_", "-"): path for path in folder.glob("*.whl")}
    assert set(found) == {"grpo-kit", *EXAMPLES, *FAULTY}
    return {**found, "sdist": sdist}


@pytest.fixture
def environment(tmp_path: Path) -> Callable[..., Path]:
    """Returns `make(*what to give to pip install)`: the `bin` folder of a new virtual environment."""

    def make(*requirements: object) -> Path:
        folder = tmp_path / "venv"
        venv.create(folder, with_pip=False, symlinks=True)
        site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
        python = folder / "bin" / "python"
        install = ("install", "--no-index", "--no-deps", "--no-build-isolation", "-q", "--ignore-installed")
        command(sys.executable, "-m", "pip", "--python", python, *install, *requirements, cwd=tmp_path)
        return folder / "bin"

    return make


def listing(bin_: Path, cwd: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command(bin_ / "grpo", "plugins", "--json", cwd=cwd))
    return found


def test_the_wheel_of_the_sdist_holds_every_file_of_the_packages_as_it_is(
    sources: Path, wheels: dict[str, Path]
) -> None:
    with zipfile.ZipFile(wheels["grpo-kit"]) as wheel:
        packed = {name: wheel.read(name) for name in wheel.namelist() if ".dist-info/" not in name}
    root = sources / "ours" / "src" / "grpo"
    files = [file for file in root.iterdir() if file.is_file()]
    for package in ("core", "plugins", "rewards", "envs", "kernels"):
        files += [file for file in (root / package).rglob("*") if file.is_file()]
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    for pattern in data["grpo.core.scaffold"]:  # behind a link
        files += (root / "core" / "scaffold").glob(pattern)
    assert packed == {file.relative_to(root.parent).as_posix(): file.read_bytes() for file in files}


def test_the_sdist_holds_files_and_no_links(wheels: dict[str, Path]) -> None:
    with tarfile.open(wheels["sdist"]) as archive:
        members = archive.getmembers()
    assert any(member.name.endswith("src/grpo/plugins/host.py") for member in members)
    assert not [member.name for member in members if member.issym() or member.islnk()]


def test_wheels_beside_ours_are_found_and_run(
    wheels: dict[str, Path], environment: Callable[..., Path], tmp_path: Path
) -> None:
    bin_ = environment(wheels["grpo-kit"], *(wheels[name] for name in EXAMPLES))
    where = command(bin_ / "python", "-c", "import grpo.core.cli.main, grpo; print(grpo.__file__)", cwd=tmp_path)
    assert where.startswith(str(tmp_path))
    found = listing(bin_, tmp_path)
    assert found["problems"] == []
    offers = {(known["distribution"], known["kind"], known["name"]) for known in found["plugins"]}
    assert {
        ("grpo-kit", "env", "gsm8k"),
        *((distribution_of(kind, name), kind, name) for kind, name in EXAMPLE.items()),
    } <= offers
    score = (
        "from grpo import Completion; from grpo.plugins.host import Host; "
        "reward = Host.discover().reward('stated_number:tolerance=1'); "
        "print(reward.call(Completion('It is 71.', row={'answer': '72'})), "
        "reward.call(Completion('It is 71.', row={'answer': 'unknown'})))"
    )
    assert command(bin_ / "python", "-c", score, cwd=tmp_path) == "1.0 None\n"
    assert "tolerance  float, default 0.0" in command(bin_ / "grpo", "plugins", "show", "stated_number", cwd=tmp_path)
    new = ("plugins", "new", "loss", "mine")
    assert "grpo-loss-mine/pyproject.toml" in command(bin_ / "grpo", *new, cwd=tmp_path)


def test_the_wheel_trains_and_reports_in_an_empty_folder(
    wheels: dict[str, Path], environment: Callable[..., Path], tmp_path: Path
) -> None:
    grpo = environment(wheels["grpo-kit"]) / "grpo"
    empty = tmp_path / "empty"
    empty.mkdir()
    run = ("run", "--env", "gsm8k", "--reward", "proximity", "--steps", "2", "--eval-size", "8")
    printed = command(grpo, *run, cwd=empty)
    assert "done after step 2" in printed
    [out] = (empty / "runs").iterdir()
    assert {"config.json", "metrics.jsonl", "model", "reward.png", "rollouts"} <= {path.name for path in out.iterdir()}
    assert "128 rollouts" in command(grpo, "report", out, "-o", "run.html", cwd=empty)


@pytest.mark.nightly
def test_editable_installs_are_found_and_pass_their_own_tests(
    sources: Path, environment: Callable[..., Path], tmp_path: Path
) -> None:
    bin_ = environment("-e", sources / "ours", *(part for name in EXAMPLES for part in ("-e", sources / name)))
    where = command(bin_ / "python", "-c", "import grpo.plugins.host as host; print(host.__file__)", cwd=tmp_path)
    assert where.strip() == str(sources / "ours" / "src" / "grpo" / "plugins" / "host.py")
    assert listing(bin_, tmp_path)["problems"] == []
    for name in EXAMPLES:
        said = command(bin_ / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", sources / name / "tests")
        assert "passed" in said


def test_faulty_neighbours_are_a_clear_line_each_and_stop_nothing(
    wheels: dict[str, Path], environment: Callable[..., Path], tmp_path: Path
) -> None:
    bin_ = environment(wheels["grpo-kit"], wheels["grpo-reward-stated-number"], *(wheels[name] for name in FAULTY))
    found = listing(bin_, tmp_path)
    lines = {(p["distribution"], p["state"]): p["line"] for p in found["problems"]}
    assert set(lines) == {
        ("grpo-test-broken", "broken"),
        ("grpo-test-exits", "broken"),
        ("grpo-test-misspelt", "misspelt"),
        ("grpo-test-clash", "clash"),
        ("grpo-kit", "clash"),
    }
    assert "No module named 'a_module_that_does_not_exist'" in lines["grpo-test-broken", "broken"]
    assert "grpo_test_broken/__init__.py:3" in lines["grpo-test-broken", "broken"]
    assert "os._exit(3) (at grpo_test_exits/__init__.py:5)" in lines["grpo-test-exits", "broken"]
    assert "Did you mean 'grpo_verifiers'?" in lines["grpo-test-misspelt", "misspelt"]
    assert "write grpo-test-clash/proximity" in lines["grpo-test-clash", "clash"]
    assert "'proximity' alone means this one" in lines["grpo-kit", "clash"]
    names = {f"{known['distribution']}/{known['name']}" for known in found["plugins"]}
    assert {"grpo-test-misspelt/survivor", "grpo-reward-stated-number/stated_number", "grpo-kit/gsm8k"} <= names
    table = command(bin_ / "grpo", "plugins", cwd=tmp_path)
    for distribution, state in lines:
        assert any(distribution in line and f" {state} " in line for line in table.splitlines())
    score = (
        "from grpo import Completion; from grpo.plugins.host import Host; host = Host.discover(); "
        "print(host.reward('grpo-test-clash/proximity').call(Completion('x')), "
        "host.reward('proximity').distribution, "
        "[reward.distribution for reward in host.default_rewards(host.env('gsm8k')) if reward.name == 'proximity'])"
    )
    assert command(bin_ / "python", "-c", score, cwd=tmp_path) == "0.25 grpo-kit ['grpo-kit']\n"
