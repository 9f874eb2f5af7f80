"""Runs that anybody may have made, listed: one that cannot be read is a line that says why, and hides no other."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from made_run import made_run

from grpo.core.record import list as lists
from grpo.core.record.list import RunLine, list_runs
from grpo.core.record.run_dir import RunDir, append_metrics, open_run_dir, read_metrics
from grpo.plugins.errors import UsageError

Harm = Callable[[RunDir], object]
DEEP = "[" * 200_000
HUGE = f"1{'0' * 400}"


def listed(folder: Path) -> dict[str, RunLine]:
    return {line.path.name: line for line in list_runs(folder)}


def configured(**changes: object) -> Harm:
    return lambda run: run.config.write_text(json.dumps({**json.loads(run.config.read_text()), **changes}))


def measured(line: str) -> Harm:
    def harm(run: RunDir) -> None:
        with run.metrics.open("a") as file:
            file.write(f"{line}\n")

    return harm


def sparse(run: RunDir) -> None:
    with run.metrics.open("ab") as file:
        file.truncate(10 * 2**30)


def large_state(run: RunDir) -> None:
    with run.state.open("ab") as file:
        file.truncate(10 * 2**30)


@pytest.mark.parametrize("name", ["config.json", "versions.json"])
def test_a_run_that_lost_a_file_that_makes_it_one_is_listed_and_says_so(tmp_path: Path, name: str) -> None:
    run = made_run(tmp_path / "lost")
    (run.path / name).unlink()
    lost = f"lost is a run that lost its {name}. Put back a copy, or start a new run."
    assert (listed(tmp_path)["lost"].problem or "").endswith(lost)
    assert [line.status for line in list_runs(run.path)] == ["unreadable"]
    with pytest.raises(UsageError, match=lost):
        open_run_dir(run.path)


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (lambda run: run.config.write_text(DEEP), "config.json is not valid JSON: it is nested more than 200 deep"),
        (measured(DEEP), "metrics.jsonl, line 5, was damaged: it is nested more than 200 deep"),
        (measured(f'{{"step": 4, "reward": {HUGE}}}'), "metrics.jsonl, line 5, was damaged: it has a number of 401"),
        (measured(f'{{"step": {2**31}}}'), "metrics.jsonl, line 5, was damaged: no run has a step 2147483648"),
        (measured('{"step": -1}'), "metrics.jsonl, line 5, was damaged: no run has a step -1"),
        (sparse, "metrics.jsonl, line 5, was damaged: it has more than 16,777,216 bytes"),
        (configured(model={"a": 1}), "its model is not a name"),
        (configured(train={"steps": "many", "dtype": "float32"}), "its steps are no number"),
        (configured(env={"name": {"a": 1}}), "does not hold what a run writes"),
        (configured(rewards=[{"a": 1}]), "does not hold what a run writes"),
    ],
)
def test_a_run_that_cannot_be_read_says_why_and_hides_no_other(tmp_path: Path, harm: Harm, why: str) -> None:
    made_run(tmp_path / "good")
    harm(made_run(tmp_path / "evil"))
    found = listed(tmp_path)
    assert (found["good"].status, found["good"].problem) == ("done", None)
    assert found["evil"].status == "unreadable"
    assert why in str(found["evil"].problem)


@pytest.mark.parametrize(
    "harm", [lambda run: run.state.write_text(DEEP), lambda run: run.state.write_text("[1]"), large_state]
)
def test_a_run_whose_state_was_damaged_is_what_its_other_files_say(tmp_path: Path, harm: Harm) -> None:
    for name in ("over", "half"):
        run = made_run(tmp_path / name)
        harm(run)
    (tmp_path / "over" / "model").mkdir(exist_ok=True)
    lines = {name: (line.status, line.resumes) for name, line in listed(tmp_path).items()}
    assert lines == {"over": ("done", False), "half": ("killed", True)}


def test_whatever_goes_wrong_in_a_run_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_run(tmp_path / "good")
    evil = made_run(tmp_path / "evil")

    def read(run: RunDir) -> list[dict[str, object]]:
        if run == evil:
            raise MemoryError("no room")
        return read_metrics(run)

    monkeypatch.setattr(lists, "read_metrics", read)
    assert {name: line.problem is None for name, line in listed(tmp_path).items()} == {"good": True, "evil": False}


def test_a_run_that_vanishes_while_it_is_listed_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_run(tmp_path / "good")
    gone = made_run(tmp_path / "gone")

    def is_run(folder: Path) -> bool:
        found = (folder / "config.json").is_file()
        if folder == gone.path:
            gone.config.unlink()
        return found

    monkeypatch.setattr(lists, "is_run", is_run)
    assert {name: line.status for name, line in listed(tmp_path).items()} == {"good": "done", "gone": "unreadable"}


def test_a_run_that_was_killed_while_it_was_made_longer_resumes(tmp_path: Path) -> None:
    run = made_run(tmp_path / "longer", steps=3)
    run.model.mkdir()
    run.state.write_text(json.dumps({"status": "running"}))
    assert (listed(tmp_path)["longer"].status, listed(tmp_path)["longer"].resumes) == ("done", False)
    configured(train={"steps": 6, "dtype": "float32"})(run)
    assert (listed(tmp_path)["longer"].status, listed(tmp_path)["longer"].resumes) == ("killed", True)


@pytest.mark.parametrize("status", ["paused", "done \x1b]52;c;UFdORUQ=\x1b\\", ["done"], 7, None, ""])
def test_a_status_that_no_run_writes_is_unknown(tmp_path: Path, status: object) -> None:
    run = made_run(tmp_path / "odd")
    run.state.write_text(json.dumps({"status": status}))
    assert [(line.status, line.resumes) for line in list_runs(tmp_path)] == [("unknown", False)]


def test_metrics_are_read_without_a_piece_that_is_as_large_as_the_file(tmp_path: Path) -> None:
    import tracemalloc

    run = made_run(tmp_path / "long", steps=1)
    row = json.dumps({f"rewards/{number}": 0.5 for number in range(3)} | {"step": 1})
    with run.metrics.open("a") as file:
        file.writelines(f"{' ' * 100_000}{row}\n" for _ in range(100))
    tracemalloc.start()
    [line] = list_runs(tmp_path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert line.status == "done"
    assert most < run.metrics.stat().st_size / 4


def test_a_run_says_when_it_began_and_how_long_it_worked(tmp_path: Path) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    run = made_run(tmp_path / "run", steps=3)
    append_metrics(run, {"step": 3, "time/held_out": 5.0, "time/checkpoint": 0.5})
    os.utime(run.config, (1e9, 1e9))
    line = listed(tmp_path)["run"]
    assert before <= datetime.fromisoformat(line.started) <= datetime.now(UTC)
    assert line.seconds == 3 * 2.0 + 5.5


@pytest.mark.parametrize("versions", ["{}", "[1]", "x", '{"started": 5}', '{"started": "yesterday"}'])
def test_a_run_that_does_not_say_when_it_began_is_as_old_as_its_configuration(tmp_path: Path, versions: str) -> None:
    run = made_run(tmp_path / "run")
    run.versions.write_text(versions)
    os.utime(run.config, (1e9, 1e9))
    assert listed(tmp_path)["run"].started == "2001-09-09T01:46:40+00:00"
