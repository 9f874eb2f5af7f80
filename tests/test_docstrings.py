"""Docstrings name only what exists: modules by dotted name or path, and names of the code in backquotes."""

from __future__ import annotations

import builtins
import keyword
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("core", "plugins", "rewards", "envs", "kernels")
FOLDERS = (*PACKAGES, "benchmarks", "docs", "examples", "tests")
DOCSTRING = re.compile(r'^ *r?"""(?!\\)(.*?)"""$', re.DOTALL | re.MULTILINE)
TEXTS = {file: file.read_text(encoding="utf-8") for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))}
DOCSTRINGS = {file: "\n".join(DOCSTRING.findall(text)) for file, text in TEXTS.items()}
DOTTED = re.compile(r"\bgrpo((?:\.[A-Za-z_]\w*)+)")
PATH = re.compile(rf"(?<![\w/])(?:{'|'.join(FOLDERS)})/[\w./-]*\w\.(?:py|md|js|json|toml)\b")
QUOTED = re.compile(r"(?<!`)`([a-z_]\w*)`(?!`)")


def resolves(dotted: str) -> bool:
    """Whether the parts behind `grpo` name a module, or something that its text has."""
    parts = dotted.strip(".").split(".")
    place = ROOT if parts[0] in PACKAGES else ROOT / "src" / "grpo"
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    if parts and (place / f"{parts[0]}.py").is_file():
        place /= f"{parts.pop(0)}.py"
    file = place / "__init__.py" if place.is_dir() else place
    return not parts or (file.is_file() and re.search(rf"\b{parts[0]}\b", file.read_text(encoding="utf-8")) is not None)


def test_there_are_docstrings() -> None:
    assert sum(map(bool, DOCSTRINGS.values())) > 1000


def test_modules_and_files_that_docstrings_name_exist() -> None:
    lost = []
    for file, text in DOCSTRINGS.items():
        lost += [f"{file.name}: grpo{dotted}" for dotted in DOTTED.findall(text) if not resolves(dotted)]
        lost += [f"{file.name}: {path}" for path in PATH.findall(text) if not (ROOT / path).exists()]
    assert lost == []


def test_names_in_backquotes_occur_in_the_code() -> None:
    """A name that no code has is that of a module, a function or a parameter that is gone."""
    known = {*dir(builtins), *keyword.kwlist, *sys.stdlib_module_names, *(file.stem for file in TEXTS)}
    for text in TEXTS.values():
        known.update(re.findall(r"\w+", re.sub(r"#.*", "", DOCSTRING.sub("", text))))
    for name in ("pyproject.toml", "Makefile"):
        known.update(re.findall(r"\w+", (ROOT / name).read_text(encoding="utf-8")))
    quoted = {(file.name, name) for file, text in DOCSTRINGS.items() for name in QUOTED.findall(text)}
    assert sorted(f"{file}: {name}" for file, name in quoted if name not in known) == []
