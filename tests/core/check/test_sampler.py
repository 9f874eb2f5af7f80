"""`check_sampler`: honest samplers hold, and each promise that one breaks is named."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from grpo.core.check.sampler import check_sampler
from grpo.plugins.errors import UsageError
from grpo.plugins.sampling import RowsSeen
from grpo.plugins.specs import SamplerSpec

CALLS = count()
PAGE = (Path(__file__).resolve().parents[3] / "docs" / "authors.md").read_text(encoding="utf-8")


def free(seen: RowsSeen) -> list[int]:
    return [row for row in range(seen.rows) if row not in seen.taken]


def own_count(seen: RowsSeen) -> list[int]:
    first = next(CALLS)
    rows = free(seen)
    return [rows[(first + n) % len(rows)] for n in range(min(seen.count, len(rows)))]


def global_random(seen: RowsSeen) -> list[int]:
    random.shuffle(rows := free(seen))
    return rows[: seen.count]


def by_insertion(seen: RowsSeen) -> list[int]:
    return [*dict.fromkeys([row for row in seen.visits if row not in seen.taken] + free(seen))][: seen.count]


@pytest.mark.parametrize(
    "spec", ["curriculum", "curriculum:floor=0.3,rest=1", "curriculum:low=0.3,high=0.6", "curriculum:fill=false"]
)
def test_the_built_in_one_holds(spec: str) -> None:
    report = check_sampler(spec)
    assert report.findings == ()
    assert report.plugin == f"sampler {spec}"
    assert {"choices", "few rows", "the same from the same", "every row again"} <= {*report.relations}
    for relation in report.relations:
        assert f"`{relation}`" in PAGE


@pytest.mark.parametrize(
    ("function", "severity", "relation"),
    [
        (lambda seen: list(range(seen.count)), "error", "few rows"),
        (lambda seen: [seen.rows] * seen.count, "error", "choices"),
        (lambda seen: [row for row in free(seen) if row not in seen.visits][: seen.count], "error", "choices"),
        (own_count, "error", "the same from the same"),
        (global_random, "error", "the same from the same"),
        (by_insertion, "error", "the same from the same"),
        (lambda seen: free(seen)[: seen.count], "warning", "every row again"),
    ],
)
def test_a_broken_promise_is_named(function: Callable[[RowsSeen], list[int]], severity: str, relation: str) -> None:
    report = check_sampler(SamplerSpec("mine", 1, function))
    assert (severity, relation) in [(finding.severity, finding.relation) for finding in report.findings]


def test_a_spec_that_names_none_is_refused() -> None:
    with pytest.raises(UsageError, match="no sampler 'curriculm'"):
        check_sampler("curriculm")
