"""Gold solutions that are refused are found row by row, played as a rollout would be, and never counted as a pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from click.testing import CliRunner
from gymnasium.spaces import Text
from patience import PATIENCE, EnvClock

from grpo import EnvSpec, validate
from grpo.core.check.gold.report import Validation
from grpo.core.cli.main import cli
from grpo.plugins.errors import OptionError, PluginError, PluginNotFound, UsageError
from grpo.plugins.placed_rows import PlacedRows

REWARDS = '''
from grpo import reward

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def brief(completion: str) -> float:
    """Pays for silence."""
    return 0.0 if completion else 1.0

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def pleased(completion: str) -> float:
    """Pays for anything."""
    return 1.0

@reward(version=1, isolation="inline")
def strict(completion: str, answer: str) -> float:
    """Fails at one answer."""
    if answer == "3":
        raise ValueError("three")
    return 1.0 if completion else 0.0

@reward(version=1, isolation="inline")
def last(completion: str, answer: str) -> float:
    """Reads the last word, and there may be none."""
    return 1.0 if answer in completion.split()[-1] else 0.0

@reward(version=1, isolation="inline")
def shy(completion: str) -> None:
    """Never applies."""
'''
ROWS = [{"question": f"{n} + 1?", "answer": str(n + 1)} for n in range(6)]


class Sums(gymnasium.Env[str, str]):
    """An environment of one turn; the tests spoil its solutions."""

    def __init__(self) -> None:
        self.observation_space = self.action_space = Text(64, min_length=0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.row = (options or {}).get("row") or ROWS[int(self.np_random.integers(len(ROWS)))]
        return self.row["question"], {"row": dict(self.row), **self.solved(self.row)}

    def solved(self, row: dict[str, str]) -> dict[str, Any]:
        return {"demonstration": f"<answer>{row['answer']}</answer>"}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", 0.0, True, False, {}


def spec_of(factory: Callable[[], Any], **changes: Any) -> EnvSpec:
    fields = {"rewards": ("gsm8k.correctness",), "verifier": "gsm8k", "dataset": lambda split: ROWS, **changes}
    return EnvSpec("sums", 1, factory, **fields)


def reasons(report: Validation) -> dict[str, str]:
    return {row.place: row.reason for row in report.refused}


def test_accepted_solutions_pass_with_what_each_reward_gave() -> None:
    report = validate(spec_of(Sums))
    assert report.ok
    assert (report.rows, report.without, report.refused) == (6, (), ())
    assert report.verdicts == {"right": 6, "wrong": 0, "undecided": 0, "failed": 0}
    [scores] = report.rewards
    assert (scores.reward, scores.mean, scores.lowest, scores.silence) == ("gsm8k.correctness", 2.0, 2.0, 0.0)
    assert str(report).startswith("env sums, split train: 6 rows, 6 gold solutions accepted, 0 refused, 0 without one")


def test_a_refused_row_is_named_with_its_place_the_reason_and_the_text() -> None:
    class Wrong(Sums):
        def solved(self, row: dict[str, str]) -> dict[str, Any]:
            return {"demonstration": f"<answer>{'40' if row['answer'] == '4' else row['answer']}</answer>"}

    placed = PlacedRows((f"sums.jsonl, line {n}", row) for n, row in enumerate(ROWS, start=1))
    report = validate(spec_of(Wrong, dataset=lambda split: placed))
    [row] = report.refused
    assert not report.ok
    assert (row.index, row.place, row.solution) == (3, "sums.jsonl, line 4", "<answer>40</answer>")
    assert row.reason.startswith("verifier 'gsm8k' rejects '40': ")
    assert f"{row.place}: {row.reason}\n  | <answer>40</answer>" in str(report)
    assert reasons(validate(spec_of(Wrong))).keys() == {"row 3"}


def test_an_answer_without_working_is_judged_but_is_no_demonstration() -> None:
    class Bare(Sums):
        def solved(self, row: dict[str, str]) -> dict[str, Any]:
            return {"gold": f"<answer>{row['answer'] if row['answer'] != '2' else '?'}</answer>"}

    assert reasons(validate(spec_of(Bare))).keys() == {"row 1"}


def test_rows_without_a_solution_are_no_pass() -> None:
    class Silent(Sums):
        def solved(self, row: dict[str, str]) -> dict[str, Any]:
            return {}

    class Some(Sums):
        def solved(self, row: dict[str, str]) -> dict[str, Any]:
            return {} if row["answer"] == "1" else super().solved(row)

    nothing = validate(spec_of(Silent))
    assert not nothing.ok
    assert "nothing was validated" in str(nothing)
    some = validate(spec_of(Some))
    assert (some.ok, some.without, some.refused) == (False, ("row 0",), ())
    assert "without a gold solution: row 0\n" in str(some)


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rewards") / "mine.py"
    file.write_text(REWARDS, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        (
            ["brief"],
            {
                0: "it is paid 0 (brief 0), and an empty completion 1",
                1: "it is paid 0 (brief 0), and an empty completion 1",
            },
        ),
        (["shy"], {0: "no reward scores it: all of them abstain", 1: "no reward scores it: all of them abstain"}),
        (["pleased"], {}),
        (["brief:weight=-1"], {}),
        (["brief", "strict:weight=2", "shy"], {2: "ValueError: three"}),
    ],
)
def test_solutions_that_the_rewards_do_not_pay_for_are_refused(
    rewards: list[str], expected: dict[int, str], mine: Path
) -> None:
    report = validate(spec_of(Sums), rewards=[f"{mine}:{reward}" for reward in rewards], size=3 if 2 in expected else 2)
    refused = {row.index: row.reason for row in report.refused}
    assert refused.keys() == expected.keys()
    assert all(expected[index] in reason for index, reason in refused.items())
    assert report.rewards[0].reward == rewards[0].partition(":")[0]


def test_a_reward_that_fits_no_solution_is_noted_though_another_pays() -> None:
    report = validate("gsm8k:size=20,template=hash")
    assert report.ok
    [note] = report.notes
    assert note.startswith("gsm8k.soft_format gives no gold solution more than an empty completion")
    assert f"note: {note}" in str(report)


def test_a_reward_that_fails_on_saying_nothing_is_noted_though_it_pays_for_every_solution(mine: Path) -> None:
    report = validate(spec_of(Sums), rewards=[f"{mine}:last"], size=1)
    [note] = report.notes
    assert note.startswith("last fails on an empty completion, which a policy may write: ")
    assert note.endswith("IndexError: list index out of range")
    assert report.ok
    assert str(report).startswith("env sums, split train: 1 row, 1 gold solution accepted, 0 refused, 0 without one")


def test_the_accepted_solution_that_a_reward_likes_least_is_noted(tmp_path: Path) -> None:
    file = tmp_path / "letters.jsonl"
    letters = [f"Dear Tom Baker,\n{text}" for text in ("the refund is sent.", "it is sent.", "a refund is sent.")]
    rows = [{"question": "Write.", "letter": one, "keywords": ["refund"], "recipient": "Tom Baker"} for one in letters]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    report = validate(f"email:dataset={file}")
    assert report.ok
    [note] = report.notes
    assert note.startswith(f"{file}, line 2: email gives its solution ")


def test_a_verifier_that_accepts_silence_everywhere_is_no_pass(mine: Path) -> None:
    class Generous(Sums):
        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            return "", 1.0, True, False, {"success": True}

    report = validate(spec_of(Generous, rewards=("environment",), verifier="environment", scores_itself=True))
    assert (report.ok, report.refused, report.silence_right) == (False, (), 6)
    assert "an empty completion is right too in 6 of 6 rows" in str(report)


class Steps(Sums):
    """Two turns: look, by a tool, and then say what was seen; the step of one row goes wrong."""

    clock: EnvClock

    @property
    def tools(self) -> list[Any]:
        return [self.look]

    def look(self, at: str) -> str:
        """Looks.

        Args:
            at: at what.
        """
        self.seen = True
        return at

    def reset(self, **how: Any) -> tuple[str, dict[str, Any]]:
        self.seen = False
        return super().reset(**how)

    def solved(self, row: dict[str, str]) -> dict[str, Any]:
        call = {"tool": "look", "arguments": {"at": "it"}}
        return {"demonstration": [call, row["answer"]] if row["answer"] != "2" else [row["answer"]]}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self.row["answer"] == "3":
            raise RuntimeError("three")
        if self.row["answer"] == "4" and action:
            self.clock.hang()
        return "", float(self.seen), True, False, {"success": self.seen and action == self.row["answer"]}


@pytest.mark.slow
def test_solutions_of_several_turns_are_played_with_their_tools_and_in_a_time_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Timed(Steps):  # not pickled, with its clock: it is stepped here
        clock = EnvClock(monkeypatch)

    played = {"rewards": ("environment",), "verifier": "environment"}
    refused = reasons(validate(spec_of(Timed, max_turns=2, **played), seconds=PATIENCE))
    assert refused.keys() == {"row 1", "row 2", "row 3"}
    assert refused["row 1"] == "verifier 'environment' rejects '2': its goal was not reached"
    assert "failed at it: RuntimeError: three" in refused["row 2"]
    assert "no answer within 60 s" in refused["row 3"]
    refused = reasons(validate(spec_of(Steps, scores_itself=True, **played), size=1))
    assert refused == {"row 0": "it takes 2 turns, and env 'sums' allows 1"}


def test_episodes_that_an_environment_makes_itself_are_named_by_their_seed() -> None:
    progress: list[tuple[int, int]] = []
    report = validate("guess:highest=4", split="test", size=5, on_rows=lambda *done: progress.append(done))
    assert (report.ok, report.rows, progress[-1]) == (True, 5, (5, 5))

    class Wrong(Sums):
        def solved(self, row: dict[str, str]) -> dict[str, Any]:
            return {"demonstration": "?"}

    assert set(reasons(validate(spec_of(Wrong, dataset=None), size=3))) == {"seed 0", "seed 1", "seed 2"}


@pytest.mark.parametrize(
    ("env", "given", "error", "why"),
    [
        ("gsm8", {}, PluginNotFound, "Did you mean 'gsm8k'"),
        ("gsm8k:sise=3", {}, OptionError, "Did you mean 'size'"),
        ("gsm8k", {"rewards": ["countdown"]}, UsageError, "needs the columns target"),
        ("gsm8k", {"size": 0}, UsageError, "size=0 must be 1 or more"),
        (spec_of(Sums, rewards=(), verifier=None), {}, UsageError, "neither a verifier nor rewards"),
        (spec_of(Sums, dataset=lambda split: [{"answer": "1"}]), {}, PluginError, "cannot start row 0: KeyError"),
    ],
)
def test_what_cannot_be_validated_is_an_error(
    env: Any, given: dict[str, Any], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        validate(env, **given)


@pytest.fixture
def puzzles(tmp_path: Path) -> Path:
    lines = [
        {"numbers": [8, 3], "target": 24, "answer": "8 * 3"},
        {"numbers": [8, 3, 2], "target": 11, "answer": "8 + 3"},
        {"numbers": [8, 3], "target": 11},
        {"numbers": [8, 3], "target": 5, "answer": "8 - 3"},
    ]
    file = tmp_path / "puzzles.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def test_the_command_names_refused_rows_by_their_lines(puzzles: Path) -> None:
    run = CliRunner().invoke(cli, ["plugins", "validate", f"env:countdown:dataset={puzzles}"])
    assert run.exit_code == 1
    assert "3 rows, 1 gold solution accepted, 1 refused, 1 without one" in run.stdout
    assert f"without a gold solution: {puzzles}, line 3\n" in run.stdout
    assert f"{puzzles}, line 2: verifier 'countdown' rejects '8 + 3': leaves out 2\n  | <reasoning>" in run.stdout
    run = CliRunner().invoke(cli, ["plugins", "validate", f"countdown:dataset={puzzles}", "--split", "test", "--json"])
    assert run.exit_code == 0
    printed = json.loads(run.stdout)
    assert (printed["ok"], printed["rows"], printed["refused"]) == (True, 1, [])


def test_the_command_takes_rewards_and_environments_only() -> None:
    arguments = ["gsm8k:size=5", "--reward", "proximity", "--reward", "format:weight=0.2", "--size", "3"]
    run = CliRunner().invoke(cli, ["plugins", "validate", *arguments])
    assert run.exit_code == 0
    assert [line.split()[0] for line in run.stdout.splitlines()[3:]] == ["reward", "proximity", "format"]
    with pytest.raises(UsageError, match="only environments have rows"):
        CliRunner().invoke(cli, ["plugins", "validate", "reward:proximity"], catch_exceptions=False)


@pytest.mark.core
def test_a_run_says_before_it_loads_a_model_that_its_rewards_refuse_right_answers(tmp_path: Path) -> None:
    def told(template: str, *rewards: str, more: tuple[str, ...] = ("--dry-run",)) -> str:
        named = [part for reward in rewards for part in ("--reward", reward)]
        ran = CliRunner().invoke(cli, ["run", "--env", f"gsm8k:size=20,template={template}", *named, *more])
        assert ran.exit_code == 0, ran.output
        return ran.output.partition("loading libraries")[0]

    small: tuple[str, ...] = (
        "--steps",
        "1",
        "--prompts-per-step",
        "1",
        "--group-size",
        "2",
        "--set",
        "evaluation.size=0",
    )
    small += ("--max-completion-length", "4", "--out", str(tmp_path / "run"))
    unfit = "env 'gsm8k': gsm8k.soft_format gives no gold solution more than an empty completion"
    assert unfit in told("hash", "proximity", "gsm8k.soft_format", more=small)
    assert unfit in told("hash", "proximity", "gsm8k.soft_format")
    assert "do not accept 8 of 8 gold solutions" in told("hash", "gsm8k.soft_format")
    assert "gold" not in told("reasoning", "proximity", "gsm8k.soft_format")
