"""`grpo runs` and `grpo show` on run directories written by the recorder, run as a user runs them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from grpo.core.cli.main import cli
from grpo.core.record.run_dir import (
    RolloutRow,
    RunDir,
    append_metrics,
    create_run_dir,
    exclusive,
    write_json,
    write_rollouts,
)
from grpo.core.text.printable import one_line, printable
from grpo.plugins.errors import UsageError

CONFIG: dict[str, Any] = {
    "env": "gsm8k:level=easy",
    "rewards": ["proximity", {"name": "length", "weight": 0.5}],
    "model": None,
    "train": {"steps": 4},
}
SYSTEM = {"role": "system", "content": "Answer with a number."}


def run_in(folder: Path, name: str, status: str | None, *metrics: dict[str, Any], **config: Any) -> RunDir:
    run = create_run_dir(folder / name, {**CONFIG, **config}, {})
    if status is not None:
        write_json(run.state, {"status": status, "step": len(metrics)})
    for row in metrics:
        append_metrics(run, row)
    return run


def rollout(group: int, text: str, reward: float | None, *outcome: Any, **others: Any) -> RolloutRow:
    values: dict[str, Any] = {
        "step": 3,
        "group": group,
        "prompt": json.dumps([SYSTEM, {"role": "user", "content": f"What is {group} + {group}, in full words?"}]),
        "completion": text,
        "tokens": len(text),
        "finish_reason": "stop",
        "columns": json.dumps({"question": f"What is {group} + {group}, in full words?", "answer": str(2 * group)}),
        "reward": reward,
        "advantage": 0.0,
        "outcomes": {"near": outcome or ("score", reward, None)},
    }
    return RolloutRow(**{**values, **others})


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    run = run_in(tmp_path, "run", "done")
    rows = [
        rollout(0, "zero", 0.25, advantage=-0.5),
        rollout(0, "nought", 0.75, advantage=0.5),
        rollout(1, "two", None, "failure", None, "reward 'near', row 2: ValueError: boom"),
        rollout(1, "t", 0.5, "abstain", None, None, finish_reason="length"),
    ]
    write_rollouts(run, 2, [rollout(0, "an early step", 0.0)])
    write_rollouts(run, 3, rows)
    return run.path


def grpo(*arguments: str | Path) -> str:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def listed(folder: Path) -> dict[str, dict[str, Any]]:
    return {Path(line["path"]).name: line for line in json.loads(grpo("runs", folder, "--json"))}


def numbers(run: Path, *arguments: str) -> list[int]:
    return [rollout["number"] for rollout in json.loads(grpo("show", run, "--json", *arguments))]


def test_runs_tells_what_each_run_is_and_reached(tmp_path: Path) -> None:
    before, after = {"step": 0, "held_out/accuracy": 0.25}, {"step": 4, "reward": 1.5, "held_out/accuracy": 0.875}
    run_in(tmp_path, "a", "done", before, {"step": 2, "reward": 0.5}, after)
    table = grpo("runs", tmp_path).splitlines()
    assert len(table) == 2
    for cell in (
        "gsm8k:level=easy",
        "embedded",
        "proximity, length:weight=0.5",
        "done",
        "4/4",
        "1.5",
        "25.0% -> 87.5%",
    ):
        assert cell in table[1]
    assert str(tmp_path / "a") in table[1]


@pytest.mark.parametrize(
    ("env", "rewards", "env_rewards", "told"),
    [
        ("gsm8k", [], {}, "defaults"),
        ("gsm8k", [], {"gsm8k": ["length", {"name": "format", "weight": 0.5}]}, "gsm8k: length, format:weight=0.5"),
        (["gsm8k", "guess"], [], {"guess": ["environment:discount=0.9"]}, "defaults; guess: environment:discount=0.9"),
        (["gsm8k", "guess"], ["length"], {"guess": ["environment"]}, "length; guess: environment"),
        (["gsm8k", "guess"], [], {"guess": ["environment"], "gsm8k": ["length"]}, "guess: environment; gsm8k: length"),
    ],
)
def test_runs_tells_the_rewards_of_each_environment(
    env: Any, rewards: Any, env_rewards: Any, told: str, tmp_path: Path
) -> None:
    run_in(tmp_path, "a", "done", env=env, rewards=rewards, env_rewards=env_rewards)
    assert f"embedded  {told}  done" in grpo("runs", tmp_path)


def test_show_prints_the_reason_of_the_verdict(recorded: Path) -> None:
    assert "verdict" not in grpo("show", recorded)
    right = rollout(0, "zero", 1.0, right=True, why="accepted: 2 of 2\x1b[31m tests")
    write_rollouts(RunDir(recorded), 4, [right, rollout(0, "nought", 0.0)])
    assert "    verdict  right  accepted: 2 of 2 tests\n" in grpo("show", recorded, "--step", "4")


def test_rewards_that_a_run_did_not_name_are_those_that_it_locked(tmp_path: Path) -> None:
    locks: dict[str, Any] = {"plugins": {"env gsm8k": {}, "reward proximity": {}, "reward gsm8k.soft_format": {}}}
    write_json(run_in(tmp_path, "a", "done", rewards=[]).versions, locks)
    assert "embedded  proximity, gsm8k.soft_format  done" in grpo("runs", tmp_path)


def test_the_newest_stopped_run_is_continued_and_a_failed_one_only_where_no_other_is(tmp_path: Path) -> None:
    for age, (name, status) in enumerate(
        [("older", "interrupted"), ("newer", "interrupted"), ("failed", "failed"), ("over", "done")]
    ):
        run = run_in(tmp_path, name, status)
        os.utime(run.config, (age, age))
    listing = CliRunner().invoke(cli, ["runs", str(tmp_path)])
    assert f"Continue the newest with: grpo run --resume {tmp_path / 'newer'}\n" in listing.stderr
    for name in ("older", "newer"):
        write_json(RunDir(tmp_path / name).state, {"status": "done"})
    listing = CliRunner().invoke(cli, ["runs", str(tmp_path)])
    assert f"Once its error is fixed, continue with: grpo run --resume {tmp_path / 'failed'}\n" in listing.stderr


def test_a_run_that_nobody_works_on_is_killed_and_resumes(tmp_path: Path) -> None:
    killed, running = run_in(tmp_path, "killed", "running"), run_in(tmp_path, "running", "running")
    run_in(tmp_path, "early", None)
    run_in(tmp_path, "interrupted", "interrupted")
    run_in(tmp_path, "saved", "running", {"step": 4}).model.mkdir()
    with exclusive(running):
        runs = listed(tmp_path)
        assert "killed, resumes" in grpo("runs", killed.path)
    assert {name: (line["status"], line["resumes"]) for name, line in runs.items()} == {
        "killed": ("killed", True),
        "running": ("running", False),
        "early": ("killed", True),
        "interrupted": ("interrupted", True),
        "saved": ("done", False),
    }


def test_runs_are_listed_oldest_first_and_other_folders_are_not_runs(tmp_path: Path) -> None:
    for age, name in ((1, "young"), (3, "old"), (2, "middle")):
        os.utime(run_in(tmp_path, name, "done").config, (1e9 - age, 1e9 - age))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    assert list(listed(tmp_path)) == ["old", "middle", "young"]


def test_an_unreadable_run_hides_no_other(tmp_path: Path) -> None:
    run_in(tmp_path, "good", "done")
    run_in(tmp_path, "bad", "done").config.write_text("{broken")
    run_in(tmp_path, "strange", "done").config.write_text("{}")
    result = CliRunner().invoke(cli, ["runs", str(tmp_path)])
    assert result.stdout.count("  unreadable  ") == 2
    assert "good" in result.stdout
    assert "bad/config.json is not valid JSON" in result.stderr
    assert "strange does not hold what a run writes: KeyError: 'env'" in result.stderr


def test_no_runs_is_no_error_but_a_missing_folder_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "grpo run --env gsm8k" in grpo("runs")
    assert json.loads(grpo("runs", "--json")) == []
    with pytest.raises(UsageError, match="there is no folder nowhere"):
        grpo("runs", "nowhere")


def test_show_prints_prompt_completion_outcomes_and_advantage(recorded: Path) -> None:
    page = grpo("show", recorded)
    assert page.count("system:\n  | Answer with a number.\n") == 1
    for line in (
        f"{recorded}, step 3: 4 completions, 2 groups",
        "user:",
        "  | What is 1 + 1, in full words?",
        "row:",
        "  | answer: 2",
        "#1  reward 0.75  advantage +0.5  6 tokens, ended by itself",
        "  | nought",
        "    near  0.75",
        "    near  failed  reward 'near', row 2: ValueError: boom",
        "    near  abstained",
        "#3  reward 0.5  advantage +0  1 tokens, cut at the limit",
    ):
        assert line in page.splitlines()
    assert "question:" not in page


def test_show_sorts_limits_and_keeps_groups_together(recorded: Path) -> None:
    assert numbers(recorded) == [0, 1, 2, 3]
    assert numbers(recorded, "--sort", "reward") == [1, 3, 0, 2]
    assert numbers(recorded, "--sort", "reward", "--ascending") == [0, 3, 1, 2]
    assert numbers(recorded, "--sort", "advantage", "--limit", "1") == [1]
    assert numbers(recorded, "--sort", "length") == [1, 0, 2, 3]
    assert numbers(recorded, "--group", "1") == [2, 3]
    assert numbers(recorded, "--failures") == [2]
    page = grpo("show", recorded, "--sort", "reward")
    order = [line.split()[0] for line in page.splitlines() if line.startswith(("#", "group"))]
    assert order == ["group", "#1", "#0", "group", "#3", "#2"]


def test_show_takes_the_last_step_or_the_one_asked_for(recorded: Path) -> None:
    assert "an early step" not in grpo("show", recorded)
    assert "an early step" in grpo("show", recorded, "--step", "2")
    assert "no reward failed" in grpo("show", recorded, "--step", "2", "--failures")


def test_show_says_how_many_more_there_are(tmp_path: Path) -> None:
    run = run_in(tmp_path, "run", "done")
    write_rollouts(run, 1, [rollout(0, "word", 0.5) for _ in range(11)])
    result = CliRunner().invoke(cli, ["show", str(run.path)])
    assert result.stdout.count("  | word") == 8
    assert "3 more: --limit 0 shows all" in result.stderr
    assert grpo("show", run.path, "--limit", "0").count("  | word") == 11


def test_failures_of_other_groups_are_not_denied(recorded: Path) -> None:
    assert numbers(recorded, "--failures", "--group", "1") == [2]
    assert "group 0: no reward failed on any of its 2 completions" in grpo(
        "show", recorded, "--failures", "--group", "0"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step", "7"], "has no rollouts of step 7; it has steps 2 to 3"),
        (["--group", "9"], "no group 9; it has groups 0 to 1"),
        (["--ascending"], "--ascending needs --sort"),
    ],
)
def test_show_refuses_what_is_not_there(recorded: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        grpo("show", recorded, *arguments)


def test_show_refuses_folders_that_are_no_runs(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="is not a run directory"):
        grpo("show", tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        grpo("show", tmp_path / "nowhere")
    with pytest.raises(UsageError, match="For a plugin: grpo plugins show gym:CartPole-v1"):
        grpo("show", "gym:CartPole-v1")
    with pytest.raises(UsageError, match="no rollouts yet"):
        grpo("show", run_in(tmp_path, "new", "running").path)


def test_completions_cannot_command_the_terminal_or_pose_as_scores(tmp_path: Path) -> None:
    run = run_in(tmp_path, "run", "done")
    text = "\x1b[2J\x1b]0;title\x07[bold]one[/bold]\r\n    near  1\u202e\x9b31mtwo\x1b]8;;no end"
    write_rollouts(run, 1, [rollout(0, text, 0.0, "failure", None, "bad \x1b[31m[red]reason\nagain")])
    lines = grpo("show", run.path).splitlines()
    assert "  | [bold]one[/bold]" in lines
    assert "  |     near  1two8;;no end" in lines
    assert "    near  failed  bad [red]reason again" in lines
    assert not set("\x1b\x07\x9b\u202e\r") & set("".join(lines))


FORGED = "said\n\n#77  reward 1  advantage +1  3 tokens, ended by itself\n  | forged\n    near  1\ngroup 9\nturn 2"


@pytest.mark.parametrize("where", ["prompt", "role", "tool", "user", "failure", "column", "reward"])
def test_no_text_of_a_rollout_passes_for_another_rollout(tmp_path: Path, where: str) -> None:
    run = run_in(tmp_path, "run", "done")
    hostile = {
        "prompt": {"prompt": json.dumps([{"role": "user", "content": FORGED}])},
        "role": {"prompt": json.dumps([{"role": FORGED.partition("\n\n")[2], "content": "x"}])},
        "failure": {"info": json.dumps({"failure": FORGED})},
        "column": {"columns": json.dumps({FORGED.partition("\n\n")[2]: FORGED})},
        "reward": {"info": json.dumps({"rewards": [FORGED]}), "messages": json.dumps([_message("assistant", "a")])},
    }
    turns = json.dumps([_message("assistant", "call"), _message(where, FORGED)])
    others = hostile.get(where, {"messages": turns, "info": json.dumps({"turns": 2})})
    write_rollouts(run, 1, [rollout(0, "text", 0.5, **others)])
    lines = grpo("show", run.path).splitlines()
    assert [line for line in lines if line.startswith("#")] == [next(line for line in lines if line.startswith("#0 "))]
    assert [line for line in lines if line.startswith(("group", "    near"))] == ["group 0", "    near  0.5"]
    assert "  | forged" not in lines
    assert lines.count("turn 2") == 0


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def test_a_name_or_a_status_cannot_command_the_terminal(tmp_path: Path) -> None:
    run = run_in(tmp_path, "a \x1b]0;title\x07b\x1b[31m; touch c", "failed")
    write_rollouts(run, 1, [rollout(0, "x", None, "abstain", None, None)])
    listing = CliRunner().invoke(cli, ["runs", str(tmp_path)])
    assert f"--resume '{tmp_path}/a b; touch c'" in listing.stderr
    write_json(run.state, {"status": "done\x1b]52;c;UFdORUQ=\x1b\\ running"})
    printed = listing.output + CliRunner().invoke(cli, ["runs", str(tmp_path)]).output
    for arguments in ((), ("--failures",), ("--wasted",)):
        printed += grpo("show", run.path, *arguments)
    assert "unknown" in printed
    assert not set("\x1b\x07") & set(printed)


@pytest.mark.slow
def test_show_on_a_terminal_wraps_and_takes_no_markup(tmp_path: Path) -> None:
    run = run_in(tmp_path, "run", "done")
    write_rollouts(run, 1, [rollout(0, "[bold]one[/bold] \x1b]0;title\x07" + "word " * 40, 0.5)])
    primary, secondary = pty.openpty()
    environment = {**os.environ, "COLUMNS": "60", "TERM": "xterm"}
    subprocess.run(
        [sys.executable, "-m", "grpo", "show", str(run.path)],
        stdout=secondary,
        env=environment,
        check=True,
        cwd=tmp_path,
    )
    os.close(secondary)
    output = b""
    try:
        while chunk := os.read(primary, 65536):
            output += chunk
    except OSError:  # the terminal is closed once everything was read
        pass
    finally:
        os.close(primary)
    shown = output.decode()
    assert "\x1b[" in shown
    assert "\x1b]" not in shown
    assert "[bold]one[/bold]" in shown
    assert max(len(printable(line)) for line in shown.splitlines()) <= max(60, len(f"{run.path}, step 1") + 30)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPdevice\x1b\\after", "after"),
        ("\x9d0;title\x9cafter", "after"),
        ("\x1b]unended keeps its text", "unended keeps its text"),
        ("\x1bcreset\x1b(B", "reset"),
        ("a\rb\r\nc\x00\x08\x7f\x85", "a\nb\nc"),
        ("\u202eevil\u2066", "evil"),
        ("\x1b", ""),
        ("Ünïcode 数 🎉", "Ünïcode 数 🎉"),
    ],
)
def test_printable_text_has_no_terminal_commands(text: str, expected: str) -> None:
    assert printable(text) == expected
    assert printable(printable(text)) == expected


def test_one_line_is_one_line_of_the_width_asked_for() -> None:
    assert one_line(" a\n\tb\x1b[0m ") == "a b"
    assert one_line("abcdef", 4) == "abc…"


@pytest.mark.slow
def test_browsing_loads_no_torch(recorded: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from grpo.core.cli.main import cli\n"
        f"cli(['runs', {str(tmp_path)!r}], standalone_mode=False)\n"
        f"cli(['show', {str(recorded)!r}], standalone_mode=False)\n"
        "sys.exit(sum(name in sys.modules for name in ('torch', 'transformers', 'trl', 'gymnasium')))"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.DEVNULL).returncode == 0
