"""What a resumed run is told about the machine that changed under it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grpo.core.record.versions import drift, installed_versions, other_releases, weights_digest

LOCK = {"kind": "reward", "name": "proximity", "distribution": "pytest", "distribution_version": "1.0", "version": 1}
LOCK |= {"options": {"table": ""}, "sha256": "aa"}
BEFORE: dict[str, Any] = {
    "libraries": {"python": "3.11.4", "torch": "2.11.0", "peft": "0.20.0"},
    "plugins": {"reward proximity": LOCK, "env gsm8k": {**LOCK, "kind": "env", "name": "gsm8k"}},
    "rows": "12",
}


def test_equal_records_have_not_drifted() -> None:
    assert drift(BEFORE, BEFORE) == []


def test_every_difference_is_one_line_that_names_it() -> None:
    now = {
        "libraries": {"python": "3.11.4", "torch": "2.12.0", "vllm": "0.30.0"},
        "plugins": {"reward proximity": {**LOCK, "version": 2, "options": {"table": "qwen"}, "sha256": "cc"}},
        "rows": "13",
    }
    assert drift(BEFORE, now) == [
        "peft was 0.20.0, is absent",
        "torch was 2.11.0, is 2.12.0",
        "vllm was absent, is 0.30.0",
        "env gsm8k is gone",
        "reward 'proximity': version was 1, is now 2; option table was '', is now 'qwen'; its source has changed",
        "the training rows changed",
    ]


def test_a_record_that_is_missing_differs_in_everything() -> None:
    assert len(drift({}, BEFORE)) == 6


def test_the_versions_of_what_scores_and_gradients_depend_on_are_recorded() -> None:
    found = installed_versions()
    assert {"python", "grpo-kit", "torch", "transformers", "trl", "peft", "numpy"} <= set(found)
    assert all(found.values())


def test_a_run_whose_packages_changed_says_which_releases_it_began_with() -> None:
    now = installed_versions(["pytest"])["pytest"]
    assert other_releases({"plugins": {"reward proximity": {**LOCK, "distribution_version": now}}}) == ""
    assert other_releases(BEFORE) == (
        f"The run began with pytest 1.0 ({now} is installed now); `pip install pytest==1.0` continues it as it was. "
        "As it is now: "
    )
    gone = {**LOCK, "distribution": "no-such-package"}
    assert "no-such-package 1.0 (none is installed now)" in other_releases({"plugins": {"reward proximity": gone}})


def test_weights_that_changed_in_their_folder_are_noticed(tmp_path: Path) -> None:
    assert weights_digest(tmp_path) is None
    file = tmp_path / "model.safetensors"
    file.write_bytes(bytes(5_000_000))
    began = {"model": weights_digest(tmp_path)}
    assert drift(began, {"model": weights_digest(tmp_path)}) == []
    file.write_bytes(b"x".join([bytes(999)] * 5_000))
    assert drift(began, {"model": weights_digest(tmp_path)}) == ["the weights of the model that it began with changed"]
    assert drift({}, began) == []
