"""How the tests of this folder read recorded cases."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ReadCases = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="session")
def read_cases(shared_data: Path) -> ReadCases:
    """Reads a JSONL file of the data folder, given its path there."""

    def read(name: str) -> list[dict[str, Any]]:
        with (shared_data / name).open(encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    return read
