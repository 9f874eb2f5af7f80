"""A reward without cases is called all the same, and what would keep a run from learning is found before it starts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from grpo import check_reward, check_verifier
from grpo.core.check.gold.validate import doubts
from grpo.core.check.report import Finding, Report
from grpo.core.check.trial import texts_for
from grpo.core.config.schema import parse_config
from grpo.core.planning.decide import make_plan
from grpo.plugins._host.python_objects import spec_of
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host

SOURCE = """
import re
from grpo import Verdict, reward, verifier

def right(completion, answer):
    return answer in completion

def exactly(completion, answer):
    return completion.strip() == answer

def in_format(completion):
    return bool(re.match(r"<reasoning>.*</reasoning>\\s*<answer>", completion, re.DOTALL))

def brief(completion):
    return -len(completion)

def forgot(completion, answer):
    found = answer in completion

def abstains(completion, answer):
    return 1.0 if answer == "nobody's" else None

def pays_all(completion):
    return 1.0

def reads_the_row_alone(completion, answer):
    return float(len(answer))

def pays_or_abstains(completion):
    if "<answer>" in completion:
        return 1.0

SEEN = set()

def pays_what_is_new(completion):
    new = completion not in SEEN
    SEEN.add(completion)
    return float(new)

def draws(completion):
    import random
    return random.random()

def draws_for_trl(completions, **kwargs):
    return [draws(completion) for completion in completions]

def raises(completion):
    raise RuntimeError("it is broken")

def in_words(completion):
    return "good"

def assumes_a_mark(completion, answer):
    return completion.split("####")[1].strip() == answer

@reward(isolation="inline")
def ends_its_process(completion):
    import os
    os._exit(1)

def reads_gold(completion, gold):
    return float(gold in completion)

def reads_a_table(completion: str, ground_truth: dict) -> float:
    return 1.0 if ground_truth["answer"] in completion else 0.0

def wants_more(completion, difficulty):
    return difficulty

def counts_messages(completions: list[list[dict]], **kwargs):
    return [float(len(completion)) for completion in completions]

def reads_texts(completions: list[list[dict]], **kwargs):
    return [float(completion.startswith("####")) for completion in completions]

def judged(completion, answer) -> Verdict:
    return Verdict(completion.endswith(answer))

def judges_nothing(completion, answer) -> Verdict:
    raise KeyError(answer)

@verifier(name="right")
def judges_with_a_number(completion, answer):
    return 1.0
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRPO_PLUGINS", "grpo-kit")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SOURCE)
    return tmp_path


def calls_of(report: Report) -> Finding | None:
    assert "calls" in report.relations
    return next((finding for finding in report.findings if finding.relation == "calls"), None)


@pytest.mark.parametrize("name", ["right", "exactly", "in_format", "brief"])
def test_an_honest_reward_without_cases_has_nothing_to_mend(file: Path, name: str) -> None:
    report = check_reward(f"./mine.py:{name}")
    assert (report.ok, calls_of(report)) == (True, None)


@pytest.mark.parametrize(
    ("name", "severity", "words"),
    [
        ("forgot", "warning", "right and wrong ones: it returned None, as a function without a `return` does"),
        ("abstains", "warning", "it abstained on each of 38 completions, right and wrong ones"),
        ("pays_all", "warning", "it gave 1 to each of 38 completions"),
        ("reads_the_row_alone", "warning", "it gave all completions of a prompt the same score"),
        (
            "pays_or_abstains",
            "warning",
            "it gave 1 to 8 of 38 completions, and returned None for the others, which then count as the mean",
        ),
        (
            "pays_what_is_new",
            "error",
            "on one completion it scored 1 and later scored 0: a score must not depend on chance",
        ),
        ("draws", "error", "a score must not depend on chance or on earlier calls"),
        ("draws_for_trl", "error", "a score must not depend on chance or on earlier calls"),
        ("raises", "error", "it failed on each of 38 completions: RuntimeError: it is broken"),
        ("in_words", "error", "it returned 'good', a str; a reward returns a float"),
        ("assumes_a_mark", "error", "it failed on 35 of 38 completions: IndexError"),
        pytest.param("ends_its_process", "error", "it failed on each of 38 completions", marks=pytest.mark.slow),
        ("wants_more", "warning", "it was not called: the rows of env 'gsm8k' lack the column difficulty"),
        ("reads_a_table", "warning", "it was not called: the rows of env 'gsm8k' lack the column ground_truth. Name"),
        ("counts_messages", "warning", "With form=text it can: it is written for text"),
        ("reads_texts", "error", "With form=text it can: it is written for text"),
    ],
)
def test_a_reward_without_cases_that_cannot_train_is_found_by_calling_it(
    file: Path, name: str, severity: str, words: str
) -> None:
    report = check_reward(f"./mine.py:{name}")
    finding = calls_of(report)
    assert finding is not None
    assert (finding.severity, words in finding.message, report.ok) == (severity, True, severity != "error"), (
        finding.message
    )


def test_a_column_that_the_rows_of_the_default_environment_lack_is_named(file: Path) -> None:
    messages = {each.relation: each.message for each in check_reward("./mine.py:reads_gold").of("warning")}
    assert messages["columns"].startswith(
        "the rows of env 'gsm8k' lack the column gold, so it was called on a made-up row"
    )
    assert "columns" not in check_reward("./mine.py:right").relations


def test_a_reward_that_hangs_is_tried_once_and_said_to_be(file: Path) -> None:
    slow = "import time\nfrom grpo import reward\n\n@reward(version=1, timeout=0.5)\n"
    (file / "slow.py").write_text(f"{slow}def hangs(completion: str) -> float:\n    time.sleep(60)\n    return 1.0\n")
    finding = calls_of(check_reward("./slow.py:hangs"))
    assert finding is not None
    assert finding.message.startswith("it failed on the one completion tried, of env 'gsm8k': it took longer")


def test_a_verifier_without_cases_is_called_too(file: Path) -> None:
    assert calls_of(check_verifier("./mine.py:judged")) is None
    finding = calls_of(check_verifier("./mine.py:judges_nothing"))
    assert finding is not None
    assert finding.message.startswith("it failed on each of 38 completions: KeyError")


def test_the_rows_of_a_named_environment_are_used(file: Path) -> None:
    (file / "rows.jsonl").write_text('{"question": "1 + 1?", "answer": "2", "difficulty": 3}\n' * 40)
    report = check_reward("./mine.py:wants_more", env="rows:dataset=rows.jsonl")
    finding = calls_of(report)
    assert finding is not None
    assert finding.message.startswith("it gave 3 to each of 26 completions")
    with pytest.raises(UsageError, match=r"needs the column difficulty, but .+ has: "):
        check_reward("./mine.py:wants_more", env="countdown")


def breaks(completion: str) -> float:
    raise ValueError(completion)


def doubts_of(*rewards: str, **settings: Any) -> list[str]:
    config = parse_config({"env": "gsm8k:size=20", "rewards": list(rewards), **settings})
    return list(doubts(make_plan(config, Host.discover(), served=False)))


@pytest.mark.slow
def test_a_run_refuses_a_reward_that_always_fails_and_warns_of_one_that_teaches_nothing(file: Path) -> None:
    assert doubts_of("proximity", "gsm8k.soft_format") == []
    [doubt, *_] = doubts_of("./mine.py:forgot", "format")
    assert doubt.startswith("reward 'forgot': it abstained on each of 26 completions")
    assert doubt.endswith("it returned None, as a function without a `return` does.")
    [doubt, *_] = doubts_of("./mine.py:pays_all")
    assert doubt.startswith("reward 'pays_all': it gave 1 to each of 26 completions")
    with pytest.raises(UsageError, match=r"reward 'raises': it failed on each of 26 completions, all of env 'gsm8k'"):
        doubts_of("./mine.py:raises")
    with pytest.raises(UsageError, match=r"reward 'assumes_a_mark': it failed on 24 of 26 .* IndexError"):
        doubts_of("./mine.py:assumes_a_mark")  # on each gold solution, in the layout that the run asks for
    [doubt, *_] = doubts_of("./mine.py:raises", failures={"stop_share": 1.0})
    assert "it failed on each of 26 completions" in doubt
    assert doubt.endswith("`grpo plugins check` tries it alone.")
    host = Host.discover()
    given = parse_config({"env": "gsm8k:size=20", "rewards": [host.give("reward", spec_of("reward", breaks))]})
    with pytest.raises(UsageError, match=r"`grpo.check_reward\(breaks\)` tries it alone"):
        list(doubts(make_plan(given, host, served=False)))


def test_a_verifier_that_has_the_name_of_a_reward_is_tried_itself(file: Path) -> None:
    with pytest.raises(UsageError, match=r"verifier 'right': it failed on each of 26 .* it returned 1\.0, a float"):
        doubts_of("./mine.py:right", verifier="./mine.py:judges_with_a_number")


ENVS = """
import gymnasium
from grpo import AnyText, env

def rows(split):
    return [{"number": number} for number in range(20)]

class Game(gymnasium.Env):
    def __init__(self, fails):
        self.observation_space = self.action_space = AnyText()
        self.fails = fails

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        row = (options or {}).get("row") or {"number": 0}
        self.number = row["number"]
        return "Which?", {"row": {**row, "answer": "2"}, "gold": "#### 2"}

    def step(self, action):
        if self.number in self.fails:
            raise RuntimeError("the machine is off")
        return "", 0.0, True, False, {}

@env(version=1, dataset=rows, rewards=["proximity"], max_turns=2)
def off():
    return Game(range(20))

@env(version=1, dataset=rows, rewards=["proximity"], max_turns=2)
def mostly_off():
    return Game(range(1, 20))
"""


@pytest.mark.slow
def test_an_environment_that_fails_at_every_gold_solution_is_refused_and_at_some_only_told_of(file: Path) -> None:
    (file / "games.py").write_text(ENVS)

    def doubts_about(env: str, **failures: Any) -> str:
        config = parse_config({"env": f"./games.py:{env}", "failures": failures})
        return " ".join(doubts(make_plan(config, Host.discover(), served=False)))

    refusal = r"^env 'off' failed at all 8 gold solutions that were tried: RuntimeError: the machine is off\. Fix the"
    with pytest.raises(UsageError, match=refusal):
        doubts_about("off")
    assert "do not accept 8 of 8 gold solutions" in doubts_about("off", stop_share=1.0)
    assert "do not accept 7 of 8 gold solutions" in doubts_about("mostly_off")


@pytest.mark.slow
def test_nothing_is_said_of_a_game_that_pays_all_texts_alike_as_none_of_them_is_known_to_be_a_move() -> None:
    config = parse_config({"env": "gym:FrozenLake-v1", "train": {"steps": 1}})
    assert not [
        doubt for doubt in doubts(make_plan(config, Host.discover(), served=False)) if "gave 0 to each" in doubt
    ]


def test_the_texts_state_the_answer_of_the_row_and_others() -> None:
    texts = texts_for({"answer": "6 * 7 = <<6*7=42>>42\n#### 42"})
    assert {"The answer is 42.", "\\boxed{42}", ""} <= {*texts}
    assert any("42" not in text and text for text in texts)
