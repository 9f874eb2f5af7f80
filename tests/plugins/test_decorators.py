"""What type checkers make of decorated functions: they stay specs, and keep the function's own types."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from grpo import RewardSpec, VerifierSpec, reward, verifier

ROOT = Path(__file__).resolve().parents[2]
RIGHT, WRONG = (ROOT / "tests" / "plugins" / f"typed_{name}.py" for name in ("right", "wrong"))


def refused_by_mypy() -> dict[str, set[int]]:
    """Returns file name to the lines with errors."""
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        "pyproject.toml",
        "--no-error-summary",
        RIGHT,
        WRONG,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return lines_by_file(re.findall(r"(\w+\.py):(\d+): error:", done.stdout))


def refused_by_pyright() -> dict[str, set[int]]:
    """Returns file name to the lines with errors."""
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "basedpyright",
        "--pythonpath",
        sys.executable,
        "--outputjson",
        RIGHT,
        WRONG,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = (each for each in found if each["severity"] == "error")
    return lines_by_file((Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in errors)


def lines_by_file(places: Iterable[tuple[str, int | str]]) -> dict[str, set[int]]:
    lines: dict[str, set[int]] = {RIGHT.name: set(), WRONG.name: set()}
    for name, line in places:
        lines[name].add(int(line))
    return lines


@pytest.mark.slow
@pytest.mark.parametrize(
    "refused", [pytest.param(refused_by_mypy, marks=pytest.mark.nightly), refused_by_pyright], ids=["mypy", "pyright"]
)
def test_type_checkers_accept_what_is_right_and_refuse_every_slip(refused: Callable[[], dict[str, set[int]]]) -> None:
    marked = {n for n, line in enumerate(WRONG.read_text().splitlines(), start=1) if line.endswith("# wrong")}
    assert refused() == {RIGHT.name: set(), WRONG.name: marked}


def test_a_decorated_function_is_a_spec_and_still_the_function() -> None:
    def near(completion: str, answer: str, *, tolerance: float = 0.1) -> float:
        return tolerance if completion == answer else 0.0

    spec = reward(version=3, range=(0.0, 1.0))(near)
    assert isinstance(spec, RewardSpec)
    assert (spec.name, spec.version, spec.function) == ("near", 3, near)
    assert spec("4", answer="4", tolerance=0.5) == 0.5
    decorate: Any = verifier(version=1)  # a verifier that returns a number is refused when it is called
    judge = decorate(near)
    assert isinstance(judge, VerifierSpec)
    assert judge("4", "5") == 0.0
