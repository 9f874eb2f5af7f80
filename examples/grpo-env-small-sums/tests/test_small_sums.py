"""The environment plays the same episode twice, survives any action, and its demonstrations score highest."""

from __future__ import annotations

from grpo_env_small_sums import rows, small_sums, small_sums_reward, small_sums_verifier

from grpo import Host, check_env, check_reward, check_verifier, validate


def test_the_environment_can_be_trusted() -> None:
    report = check_env("grpo-env-small-sums/small_sums")
    assert report.ok, str(report)


def test_every_row_can_be_solved() -> None:
    for split in ("train", "test"):
        report = validate("grpo-env-small-sums/small_sums", split=split)
        assert report.ok, str(report)


def test_its_scores_can_be_trusted() -> None:
    for report in (check_reward(small_sums_reward), check_verifier(small_sums_verifier)):
        assert report.ok, str(report)


def test_the_splits_differ() -> None:
    assert rows("train", size=20) != rows("test", size=20)


def test_grpo_finds_it() -> None:
    assert Host.discover().env("grpo-env-small-sums/small_sums").spec is small_sums
