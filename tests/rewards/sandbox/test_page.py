"""docs/sandbox.md is true: its programs run, and it names every outcome, limit and option."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from grpo.plugins.sandbox_job import Job, JobOutcome, Limits
from grpo.rewards.sandbox.profiles import NAMES

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "sandbox.md").read_text(encoding="utf-8")


def test_the_examples_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    namespace: dict[str, object] = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "docs/sandbox.md", "exec"), namespace)


def test_every_outcome_limit_field_and_profile_is_named() -> None:
    for name in (*get_args(JobOutcome), *(field.name for field in (*fields(Limits), *fields(Job))), *NAMES):
        assert f"`{name}`" in TEXT, name


def test_the_defaults_on_the_page_are_those_of_the_code() -> None:
    limits = Limits()
    assert f"| `cpu_seconds` | {limits.cpu_seconds:g} |" in TEXT
    assert f"| `wall_seconds` | {limits.wall_seconds:g} |" in TEXT
    assert f"| `memory_bytes` | {limits.memory_bytes >> 20} MB |" in TEXT
    assert f"| `output_bytes` | {limits.output_bytes >> 20} MB for stdout" in TEXT
    assert f"| `disk_bytes` | {limits.disk_bytes >> 20} MB and 1,024 files |" in TEXT
    assert f"| `processes` | {limits.processes} |" in TEXT
