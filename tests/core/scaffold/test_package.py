"""New packages: their files, the names that are refused, and that they install, pass their own tests and are listed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path
from typing import Any

import pytest

from grpo.core.scaffold.package import package_files, write_package
from grpo.envs.text.templates import TEMPLATES
from grpo.plugins.contract import CONTRACT
from grpo.plugins.errors import UsageError
from grpo.plugins.specs import KINDS, Kind


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_has_all_that_a_package_needs(kind: Kind) -> None:
    files = package_files(kind, "word-sum")
    package = f"grpo_{kind}_word_sum"
    project = tomllib.loads(files["pyproject.toml"])["project"]
    assert project["name"] == f"grpo-{kind}-word-sum"
    assert project["entry-points"]["grpo"] == {"word_sum": package}
    assert {"README.md", "LICENSE", ".gitignore", ".github/workflows/tests.yml", f"src/{package}/py.typed"} <= set(
        files
    )
    for path, text in files.items():
        if path.endswith(".py"):
            compile(text, path, "exec")
            assert max(map(len, text.splitlines())) <= 120
    assert f"\ngrpo_contract = {CONTRACT}\n" in files[f"src/{package}/__init__.py"]
    assert "python-version: ${{ matrix.python }}" in files[".github/workflows/tests.yml"]
    assert not re.search(r"word_sum@\d", "".join(files.values())), "its tests pass when its version is raised"
    assert not [path for path, text in files.items() if "$name" in text or "$package" in text]


def test_the_reward_of_a_package_pays_for_right_answers_in_every_layout() -> None:
    names: dict[str, Any] = {}
    exec(package_files("reward", "mine")["src/grpo_reward_mine/__init__.py"], names)
    mine, working = names["mine"], "Sold 48/2 = <<48/2=24>>24 in May.\n48+24 = <<48+24=72>>72 clips altogether."
    for template in TEMPLATES.values():
        assert mine(template.render(working, "72"), f"{working}\n#### 72") == 1.0
        assert mine(template.render(working, "72 or 24"), "72") == 0.0


@pytest.mark.parametrize(
    "name", ["Mine", "1st", "a/b", "", "class", "print", "reward", "a--b", "x" * 31, "-a", "no\nline"]
)
def test_a_name_that_cannot_be_used_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"cannot name a package|means something else"):
        package_files("reward", name)


def command(*arguments: object, cwd: Path, ok: bool = True) -> str:
    """Runs a command without our own variables and returns its stdout."""
    environment = {name: value for name, value in os.environ.items() if name not in ("GRPO_PLUGINS", "PYTHONPATH")}
    done = subprocess.run(
        [str(argument) for argument in arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == ok, f"{done.stdout}\n{done.stderr}"
    return done.stdout if ok else done.stderr


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    new = (sys.executable, "-m", "grpo", "plugins", "new", "reward", "mine", "--dir", tmp_path / "deep")
    assert "Next: pip install -e" in command(*new, cwd=tmp_path)
    marker = tmp_path / "deep" / "grpo-reward-mine" / "README.md"
    marker.write_text("mine", encoding="utf-8")
    assert "is there already" in command(*new, cwd=tmp_path, ok=False)
    assert marker.read_text(encoding="utf-8") == "mine"


def test_a_package_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """A folder in the place of a file stands in for the full disk."""
    with pytest.raises(UsageError, match=r"cannot write .*mine: .* Choose another place with --dir"):
        write_package(tmp_path / "mine", {"README.md": "mine", "README.md/more": "mine"})
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_taken_is_a_note(tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "grpo", "plugins", "new", "reward", "proximity"]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "grpo-kit offers the reward 'proximity' too; the new one is grpo-reward-proximity/proximity" in done.stderr


@pytest.mark.install
def test_new_packages_install_pass_their_tests_and_are_listed(tmp_path: Path) -> None:
    """In a virtual environment that sees all that is installed here, as if it were its own."""
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (site / "dependencies.pth").write_text(
        "".join(f"import site; site.addsitedir({path!r})\n" for path in sys.path if Path(path).name == "site-packages")
    )
    python = folder / "bin" / "python"
    work = tmp_path / "work"
    work.mkdir()
    for kind in KINDS:
        command(python, "-m", "grpo", "plugins", "new", kind, f"my-{kind}", cwd=work)
    packages = [work / f"grpo-{kind}-my-{kind}" for kind in KINDS]
    install = (sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps")
    flags = ("--no-build-isolation", "-q", "--ignore-installed", "--disable-pip-version-check")
    command(*install, *flags, packages[0], "-e", packages[1], "-e", packages[2], *packages[3:], cwd=tmp_path)

    listing = json.loads(command(python, "-m", "grpo", "plugins", "--json", cwd=work))
    assert listing["problems"] == []
    states = {(known["distribution"], known["kind"], known["name"]): known["state"] for known in listing["plugins"]}
    assert [states[f"grpo-{kind}-my-{kind}", kind, f"my_{kind}"] for kind in KINDS] == ["ok"] * len(KINDS)
    inner: tuple[Kind, ...] = ("sandbox", "session")  # which stand on built-in ones
    others = [package.name for kind, package in zip(KINDS, packages, strict=True) if kind not in inner]
    check = (python, "-m", "grpo", "plugins", "check")
    report = command("env", f"GRPO_PLUGINS={','.join(others)}", *check, "--all", cwd=work)
    held = re.findall(r"^(\w+ \w+): .* all hold$", report, re.MULTILINE)
    assert {f"{kind} my_{kind}" for kind in KINDS if kind not in inner} <= set(held)
    for kind in inner:
        assert "all hold" in command(*check, f"grpo-{kind}-my-{kind}/my_{kind}", cwd=work)

    # The fixture comes by the entry point of the installed distribution.
    (packages[0] / "tests" / "test_fixture.py").write_text(
        "from grpo_reward_my_reward import my_reward\ndef test_it(grpo_check):\n    assert grpo_check(my_reward).ok\n",
        encoding="utf-8",
    )
    for package in packages:
        said = command(python, "-m", "pytest", "-p", "no:cacheprovider", cwd=package)
        assert " passed" in said
        assert ("tests/test_fixture.py ." in said) == (package == packages[0])
