"""What a resumed run is told about the machine that changed under it."""

from __future__ import annotations

from typing import Any

from grpo.core.record.versions import drift, installed_versions

BEFORE: dict[str, Any] = {
    "libraries": {"python": "3.11.4", "torch": "2.11.0", "peft": "0.20.0"},
    "plugins": {"reward proximity": {"version": 1, "code": "aa"}, "env gsm8k": {"version": 1, "code": "bb"}},
    "rows": "12",
}


def test_equal_records_have_not_drifted() -> None:
    assert drift(BEFORE, BEFORE) == []


def test_every_difference_is_one_line_that_names_it() -> None:
    now = {
        "libraries": {"python": "3.11.4", "torch": "2.12.0", "vllm": "0.30.0"},
        "plugins": {"reward proximity": {"version": 2, "code": "cc"}},
        "rows": "13",
    }
    assert drift(BEFORE, now) == [
        "peft was 0.20.0, is absent",
        "torch was 2.11.0, is 2.12.0",
        "vllm was absent, is 0.30.0",
        "env gsm8k changed: code, version",
        "reward proximity changed: code, version",
        "the training rows changed",
    ]


def test_a_record_that_is_missing_differs_in_everything() -> None:
    assert len(drift({}, BEFORE)) == 6


def test_the_versions_of_what_scores_and_gradients_depend_on_are_recorded() -> None:
    found = installed_versions()
    assert {"python", "grpo-kit", "torch", "transformers", "trl", "peft", "numpy"} <= set(found)
    assert all(found.values())
