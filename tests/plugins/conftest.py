"""A way to make entry points whose modules are written in the test that needs them."""

from __future__ import annotations

import importlib.util
import itertools
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo.plugins._host.entry_points import Entry

PREAMBLE = """
from grpo import Case, EnvSpec, RewardSpec, SandboxSpec, Verdict, VerifierSpec, hookimpl, reward, verifier
"""


@pytest.fixture
def make_entry(tmp_path: Path) -> Callable[..., Entry]:
    """Returns `make(source, distribution=, name=, version=)`: an entry whose `load` imports a file with that source."""
    numbers = itertools.count()

    def make(source: str, distribution: str = "some-dist", name: str = "rewards", version: str = "1.0") -> Entry:
        path = tmp_path / f"plugin_{next(numbers)}.py"
        path.write_text(PREAMBLE + textwrap.dedent(source))

        def load() -> Any:
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module

        return Entry(distribution, version, name, load)

    return make


NEAR = """
from typing import Literal

@reward(version=2, range=(0.0, 1.0), isolation="inline", timeout=3.0)
def near(completion: str, answer: str, hint: str = "", *, tolerance: float = 0.1, limit: int = 5, tag: str = "x",
         mode: Literal["a", "b"] = "a", flag: bool = False, pair: tuple[float, float] = (0.0, 1.0),
         words: list[str] | None = None) -> float:
    "Scores nearness."
    return 1.0 if completion == answer else tolerance

@verifier(version=1, isolation="inline")
def near_verifier(completion: str, answer: str) -> Verdict:
    return Verdict(completion == answer)

@hookimpl
def grpo_rewards():
    return [near]

@hookimpl
def grpo_verifiers():
    return [near_verifier]
"""


@pytest.fixture
def near_entry(make_entry: Callable[..., Entry]) -> Entry:
    """An entry of "near-dist" with the reward `near`, which has options of many types, and a verifier."""
    return make_entry(NEAR, distribution="near-dist", name="near", version="4.5")
