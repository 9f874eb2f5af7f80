"""The house plan, checked: what stands at the top, the links of the import root, the shape of a module."""

from __future__ import annotations

import ast
import fnmatch
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("core", "envs", "kernels", "plugins", "rewards")
TOP = {
    ".ci",
    ".github",
    ".gitignore",
    ".pre-commit-config.yaml",
    "AGENTS.md",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "benchmarks",
    "constraints.txt",
    "docs",
    "examples",
    "pyproject.toml",
    "src",
    "tests",
    "uv.lock",
    *PACKAGES,
}
SOURCES = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LONGEST_MODULE = 600


def test_the_top_level_is_the_plan_and_nothing_else() -> None:
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().split()]
    there = {
        path.name
        for path in ROOT.iterdir()
        if path.name != ".git" and not any(fnmatch.fnmatch(path.name, pattern) for pattern in ignored)
    }
    assert there == TOP


def test_the_import_root_holds_links_to_the_packages_and_three_files() -> None:
    root = ROOT / "src" / "grpo"
    links = {path.name: path.readlink().as_posix() for path in root.iterdir() if path.is_symlink()}
    assert links == {name: f"../../{name}" for name in PACKAGES}
    assert {path.name for path in root.iterdir() if path.is_file()} == {"__init__.py", "__main__.py", "py.typed"}


def test_every_package_with_code_is_listed_for_the_wheel() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {file.parent.relative_to(ROOT) for file in SOURCES}
    assert sorted(listed) == sorted(["grpo", *(".".join(("grpo", *folder.parts)) for folder in folders)])


def test_every_data_file_of_a_package_is_listed_for_the_wheel() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*"):
            if file.is_file() and file.suffix not in (".py", ".pyc"):
                name = ".".join(("grpo", *file.parent.relative_to(ROOT).parts))
                assert any(fnmatch.fnmatch(file.name, pattern) for pattern in patterns.get(name, [])), file


def test_the_tests_mirror_the_packages() -> None:
    folders = {test.parent.relative_to(ROOT / "tests") for test in TESTS if test.name.startswith("test_")} - {Path()}
    assert {folder.parts[0] for folder in folders} <= set(PACKAGES)
    assert [folder for folder in sorted(folders) if not (ROOT / folder / "__init__.py").is_file()] == []


def test_every_folder_of_the_engine_has_its_place_in_the_order_of_imports() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (order,) = [contract for contract in contracts if contract.get("containers") == ["grpo.core"]]
    placed = [name.strip("( )") for layer in order["layers"] for name in re.split("[|:]", layer)]
    folders = {
        file.relative_to(ROOT / "core").parts[0].removesuffix(".py")
        for file in SOURCES
        if file.is_relative_to(ROOT / "core")
    }
    assert sorted(placed) == sorted(folders - {"__init__"})
    assert (order["type"], order["exhaustive"]) == ("layers", True)


def test_every_file_opens_with_its_docstring_and_stays_short() -> None:
    assert [file for file in (*SOURCES, *TESTS) if not is_described_and_short(file)] == []


def test_no_module_is_named_for_nothing() -> None:
    empty = {"util", "utils", "helper", "helpers", "manager", "base"}
    assert [file for file in SOURCES if empty & set(file.stem.split("_"))] == []


def is_described_and_short(file: Path) -> bool:
    text = file.read_text()
    return bool(ast.get_docstring(ast.parse(text))) and len(text.splitlines()) <= LONGEST_MODULE
