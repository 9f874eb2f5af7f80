"""JSON that anybody may have made: what cannot be walked, counted with or written again is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from grpo.core.record.table import DEEPEST, parsed


@pytest.mark.parametrize(
    "value", [None, 5, -1.5, "[" * 999, [], {"a": [{}, 1, "{"]}, 10**299, [[1]] * 999, {"digits": "1" * 999}]
)
def test_what_runs_write_is_read_as_it_was(value: Any) -> None:
    assert parsed(json.dumps(value)) == value


@pytest.mark.parametrize("count", [DEEPEST + 1, 5_000, 200_000])
@pytest.mark.parametrize("parts", [("[", "]"), ('{"a":', "}")])
def test_what_is_nested_too_deeply_is_refused(count: int, parts: tuple[str, str]) -> None:
    start, end = parts
    value = parsed(start * (DEEPEST - 1) + "[]" + end * (DEEPEST - 1))
    assert json.dumps(value, indent=1)
    with pytest.raises(ValueError, match="nested more than 200 deep"):
        parsed(start * (count - 1) + "[]" + end * (count - 1))


def test_a_number_that_no_float_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="a number of 401 digits"):
        parsed(f'{{"reward": 1{"0" * 400}}}')


@pytest.mark.parametrize("text", ["", "{", "[1] 2", "[" * 200_000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed(text)
