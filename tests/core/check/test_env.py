"""Environments under check: ours hold, planted faults are found by name, and nothing is raised."""

from __future__ import annotations

import os
import random
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.spaces import Text

from grpo import EnvSpec, check_env
from grpo.core.check.report import Report
from grpo.plugins.errors import NotInstalled, PluginNotFound

pytestmark = pytest.mark.slow

ROWS = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(12)]


class Sums(gymnasium.Env[str, str]):
    """A sound environment of one turn; the tests spoil one method each."""

    opened = 0

    def __init__(self) -> None:
        self.observation_space = self.action_space = Text(64, min_length=0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        row = (options or {}).get("row") or ROWS[int(self.np_random.integers(len(ROWS)))]
        return "", self.started(row)

    def started(self, row: dict[str, str]) -> dict[str, Any]:
        prompt = [{"role": "user", "content": row["question"]}]
        return {"prompt": prompt, "row": dict(row), "demonstration": f"<answer>{row['answer']}</answer>"}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", 0.0, True, False, {}


def spec_of(factory: Callable[[], Any], **changes: Any) -> EnvSpec:
    fields = {"rewards": ("gsm8k.correctness",), "verifier": "gsm8k", "dataset": lambda split: ROWS, **changes}
    return EnvSpec("sums", 1, factory, **fields)


def errors(report: Report) -> set[str]:
    return {finding.relation for finding in report.of("error")}


@pytest.mark.core
def test_sound_environments_hold() -> None:
    assert check_env("gsm8k:size=30").findings == ()
    report = check_env(spec_of(Sums))
    assert report.ok, str(report)
    assert errors(check_env(spec_of(Sums, dataset=None))) == set()


def test_an_episode_that_ignores_its_seed_is_found() -> None:
    class Random(Sums):
        def reset(self, **how: Any) -> tuple[str, dict[str, Any]]:
            observation, info = super().reset(**how)
            return observation + str(random.random())[:8], info

    assert "same seed, same episode" in errors(check_env(spec_of(Random)))


def test_an_episode_that_goes_otherwise_the_second_time_is_found() -> None:
    class Moody(Sums):
        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            return "", 0.0, True, False, {"mood": random.random()}

    messages = {finding.relation: finding.message for finding in check_env(spec_of(Moody)).of("error")}
    unlike = r"info\['mood'\] is 0\.\d+(e-\d+)? and then 0\.\d+(e-\d+)?"
    assert re.search(
        f"the same actions get different results with seed 0: {unlike}", messages["same seed, same episode"]
    )
    assert re.search(f"Deterministic step info .*: {unlike}", messages["gymnasium's checker"])


def test_times_that_an_episode_measures_may_differ_and_texts_of_such_a_name_may_not() -> None:
    class Timed(Sums):
        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            return "", 0.0, True, False, {"machine_seconds": random.random()}

    class Untimed(Sums):
        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            return "", 0.0, True, False, {"machine_seconds": str(random.random())}

    assert errors(check_env(spec_of(Timed))) == set()
    assert {"gymnasium's checker", "same seed, same episode"} <= errors(check_env(spec_of(Untimed)))


def test_instances_that_share_state_are_found_when_they_run_side_by_side() -> None:
    class Shared(Sums):
        last: list[object] = [None]  # noqa: RUF012

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            Shared.last[0] = self
            time.sleep(0.002)
            return "", 0.0, True, False, {"mine": Shared.last[0] is self}

    assert errors(check_env(spec_of(Shared))) == {"1000 instances"}


def test_what_an_episode_leaves_behind_is_found() -> None:
    class Leaking(Sums):
        last = ""

        def reset(self, **how: Any) -> tuple[str, dict[str, Any]]:
            _, info = super().reset(**how)
            return self.last, info

        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            self.last = "left"
            return super().step(action)

    assert "no leak between episodes" in errors(check_env(spec_of(Leaking)))


def test_a_row_that_reset_changes_is_found() -> None:
    class Changing(Sums):
        def started(self, row: dict[str, str]) -> dict[str, Any]:
            info = super().started(row)
            row["question"] = row["question"].upper() + "!"
            return info

    rows = [dict(row) for row in ROWS]
    assert "row unchanged" in errors(check_env(spec_of(Changing, dataset=lambda split: rows)))


@pytest.mark.core
def test_hostile_actions_that_raise_score_nan_or_never_end_are_found() -> None:
    class Strict(Sums):
        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            int(action.encode().isdigit())
            return "", 0.0, True, False, {"scores": {"sum": float("nan")}}

    class Endless(Sums):
        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            return "", 0.0, False, False, {}

    findings = [f for f in check_env(spec_of(Strict)).of("error") if f.relation == "hostile actions"]
    assert len(findings) == 1
    assert "and 8 more" in findings[0].message
    [finding] = check_env(spec_of(Endless)).of("error")
    assert "no end within 200 turns" in finding.message


def test_a_step_of_other_than_five_values_is_the_one_finding() -> None:
    class Old(Sums):
        def step(self, action: str) -> Any:
            return "", 0.0, True

    report = check_env(spec_of(Old))
    assert [finding.message for finding in report.of("error")] == [
        "step returned 3 values, not observation, reward, terminated, truncated and info"
    ]


def test_an_async_reset_is_the_one_finding_and_no_warning_of_python() -> None:
    class Async(Sums):
        async def reset(self, **how: Any) -> Any:  # type: ignore[override]
            return "", {}

    report = check_env(spec_of(Async))
    assert [str(finding.message) for finding in report.findings] == ["reset is async; it must be a plain function"]


def test_a_close_that_raises_before_reset_is_a_warning_of_its_own() -> None:
    class Opened(Sums):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            self.file = True
            return super().reset(seed=seed, options=options)

        def close(self) -> None:
            assert self.file

    report = check_env(spec_of(Opened))
    assert report.ok
    [finding] = report.findings
    assert (finding.severity, finding.relation) == ("warning", "close")
    assert "no attribute 'file'" in finding.message


@pytest.mark.slow
def test_tools_that_cannot_be_described_raise_or_answer_otherwise_the_next_time_are_found() -> None:
    class Tooled(Sums):
        called = 0

        def started(self, row: dict[str, str]) -> dict[str, Any]:
            worked = [{"tool": "look", "arguments": {"at": "it"}}, f"<answer>{row['answer']}</answer>"]
            return {**super().started(row), "demonstration": worked}

        @property
        def tools(self) -> list[Any]:
            return [self.look]

        def look(self, at: str) -> str:
            """Looks.

            Args:
                at: at what.
            """
            return at[:9]

    class Leaving(Tooled):
        def look(self, at: str) -> str:
            """Looks.

            Args:
                at: at what.
            """
            if at.startswith("raise SystemExit"):
                raise SystemExit(3)
            Leaving.called += 1
            return str(Leaving.called)

    class Bare(Tooled):
        def look(self, at):  # type: ignore[no-untyped-def]
            return at

    sound = check_env(spec_of(Tooled, max_turns=3))
    assert sound.ok, str(sound)
    messages = [f.message for f in check_env(spec_of(Leaving, max_turns=3)).of("error")]
    assert any("SystemExit" in message for message in messages), messages
    assert any("two instances answer the same call differently" in message for message in messages), messages
    assert any("max_turns is 1" in f.message for f in check_env(spec_of(Tooled)).of("error"))
    assert any("cannot be described" in f.message for f in check_env(spec_of(Bare, max_turns=3)).of("error"))


def test_demonstrations_that_its_rewards_do_not_like_are_found() -> None:
    class Wrong(Sums):
        def started(self, row: dict[str, str]) -> dict[str, Any]:
            return {**super().started(row), "demonstration": "<answer>-1</answer>"}

    report = check_env(spec_of(Wrong))
    assert errors(report) == {"demonstrations score highest"}

    class Silent(Sums):
        def started(self, row: dict[str, str]) -> dict[str, Any]:
            return {key: value for key, value in super().started(row).items() if key != "demonstration"}

    assert [f.message for f in check_env(spec_of(Silent)).of("note")] == ["its episodes have no demonstration"]


def test_rows_that_change_or_are_missing_are_found() -> None:
    count = iter(range(1000))
    moving = check_env(spec_of(Sums, dataset=lambda split: [{"question": "?", "answer": str(next(count))}]))
    assert "rows" in errors(moving)
    empty = check_env(spec_of(Sums, dataset=lambda split: ROWS if split == "train" else []))
    assert errors(empty) == {"rows"}


def test_what_cannot_be_made_or_hangs_is_a_finding() -> None:
    assert "gymnasium's checker" in errors(check_env(spec_of(dict)))

    class Hanging(Sums):
        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            time.sleep(3)
            return super().step(action)

    report = check_env(spec_of(Hanging), seconds=0.5)
    assert "time limit" in errors(report)


def test_a_wrong_name_is_the_users_error() -> None:
    with pytest.raises(PluginNotFound, match="Did you mean 'gsm8k'"):
        check_env("gsm8")


def test_an_environment_that_cannot_be_made_is_one_finding() -> None:
    def broken() -> Any:
        raise OSError("no such game")

    report = check_env(spec_of(broken))
    assert [(finding.relation, finding.message) for finding in report.findings] == [
        ("it can be made", "OSError: no such game")
    ]


def test_a_missing_module_is_the_users_error_and_no_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(2 * '{"instruction": "Do nothing.", "grader": "true"}\n')
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(NotInstalled, match="session 'docker' needs the module 'docker'"):
        check_env(f"shell:{tasks}:session=docker")


def test_an_environment_that_exits_ends_nothing_but_its_relation() -> None:
    class Exits(Sums):
        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            raise SystemExit(3)

    report = check_env(spec_of(Exits, scores_itself=True))
    assert {"gymnasium's checker", "1000 instances"} <= errors(report)
    assert "hostile actions" in report.relations
    assert "SystemExit: 3" in str(report)


@pytest.mark.core
def test_an_environment_that_ends_its_process_costs_the_relations_that_step_it() -> None:
    class Dies(Sums):
        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            os._exit(7)

    report = check_env(spec_of(Dies, rewards=(), verifier=None))
    faults = {finding.relation: finding.message for finding in report.of("error")}
    assert faults["hostile actions"] == "its process ended with exit code 7"
    assert "SystemExit: it called os._exit(7)" in faults["1000 instances"]
    assert "rows" not in faults
    assert "demonstrations score highest" in report.relations


def test_an_environment_that_needs_a_row_is_told_where() -> None:
    class Needs(Sums):
        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[str, dict[str, Any]]:
            return "", self.started(options["row"])

    [first, *_] = check_env(spec_of(Needs)).of("error")
    assert first.relation == "gymnasium's checker"
    assert "TypeError: 'NoneType' object is not subscriptable (at check/test_env.py:" in first.message


@pytest.mark.core
def test_what_raises_everywhere_is_one_error_that_names_what_to_change() -> None:
    class OfRows(Sums):
        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
            return "", self.started(options["row"])

    (finding,) = check_env(spec_of(OfRows)).of("error")
    assert "TypeError: 'NoneType' object is not subscriptable (at check/test_env.py:" in finding.message
    assert "reset must also work without options" in finding.message


@pytest.mark.core
def test_a_reward_that_is_none_is_found() -> None:
    class Payless(Sums):
        def step(self, action: str) -> Any:
            return "", None if action else 0.0, True, False, {}

    messages = {finding.relation: finding.message for finding in check_env(spec_of(Payless)).of("error")}
    assert "the score None is not a finite number" in messages["hostile actions"]


@pytest.mark.core
def test_a_broken_dataset_function_is_told_without_the_words_of_python() -> None:
    (finding,) = check_env(spec_of(Sums, dataset=lambda split: None)).of("error")
    assert finding.message == (
        "env 'sums': the function of its rows, for the split 'train', returned None. Return a list of dicts, one for "
        "each row."
    )
