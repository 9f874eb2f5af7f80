"""The whole method in one file, as a newcomer reads it first: it is short, and it learns."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FILE = Path(__file__).parents[3] / "examples" / "minimal_loop.py"


def test_it_is_short_enough_to_be_read_at_once() -> None:
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= 200


@pytest.mark.slow
def test_it_learns(capsys: pytest.CaptureFixture[str]) -> None:
    means = runpy.run_path(str(FILE))["main"](8)
    assert len(means) == 8
    assert min(means[-3:]) > means[0] + 0.15, means
    assert capsys.readouterr().out.count("reward") == 8
