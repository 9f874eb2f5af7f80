"""Shrinking keeps what was asked for, ends minimal, within its calls, and prints a case that holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from command import Done, grpo

from grpo import Case
from grpo.core.check.shrink import shrink
from grpo.plugins.host import Host


def each(test: Callable[[str], bool]) -> Callable[[Sequence[str]], list[bool]]:
    return lambda texts: [test(text) for text in texts]


def test_it_finds_the_one_thing_that_matters() -> None:
    text = "\n".join(f"line {n} of many words" for n in range(200)) + "\nthe answer is <72> here\n" + "x" * 500
    done = shrink(text, each(lambda t: "<72>" in t))
    assert (done.text, done.minimal) == ("<72>", True)
    assert done.calls < 400


def test_parts_that_stand_far_apart_are_kept_together() -> None:
    text = "a" * 50 + "<b>" + "c\n" * 50 + "</b>" + " d" * 50
    done = shrink(text, each(lambda t: t.find("<b>") < t.rfind("</b>") and "<b>" in t))
    assert done.text == "<b></b>"


def test_no_single_character_can_be_dropped_from_the_result() -> None:
    def even(text: str) -> bool:
        return text.count("a") >= 3 and text.count("b") == 2

    done = shrink("ab a\nb aaa c a\n" * 1 + "a", each(even))
    assert even(done.text)
    assert not any(even(done.text[:n] + done.text[n + 1 :]) for n in range(len(done.text)))


def test_the_calls_are_bounded() -> None:
    tried = 0

    def keeps(texts: Sequence[str]) -> list[bool]:
        nonlocal tried
        tried += len(texts)
        return [text.count("a") >= 400 for text in texts]

    done = shrink("a b\n" * 1000, keeps, calls=50)
    assert tried == done.calls == 50
    assert not done.minimal
    assert done.text.count("a") >= 400


def test_a_text_of_which_nothing_can_go_stays() -> None:
    assert shrink("abc", each(lambda t: t == "abc")).text == "abc"
    assert shrink("abc", each(lambda t: True)).text == ""
    assert shrink("", each(lambda t: True)).text == ""


ROWS = [
    {"completion": "Well.\n<answer>72</answer> and more\nwords", "answer": "72", "unused": 1},
    {"completion": "<reasoning>\nlong\n</reasoning>\n<answer>\nthing\n</answer>\n", "answer": "72"},
]


def shrunk(*arguments: str, cwd: Path) -> Done:
    return grpo("shrink", *arguments, cwd=cwd)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_the_command_prints_a_case_that_holds(folder: Path) -> None:
    done = shrunk("--reward", "gsm8k.correctness:variant=gist", "--input", "rows.jsonl", "--row", "1", cwd=folder)
    case = eval(done.stdout, {"Case": Case})
    assert case == Case("72", row={"answer": "72"}, expect=2.0, options={"variant": "gist"})
    reward = Host.discover().reward("gsm8k.correctness")
    assert reward.spec(case.completion, **case.row, **case.options) == case.expect
    assert "characters became 2" in done.stderr


@pytest.mark.slow
def test_a_minimum_keeps_any_score_from_there_up(folder: Path) -> None:
    done = shrunk("--reward", "format", "--input", "rows.jsonl", "--row", "2", "--min-score", "0.3", cwd=folder)
    case = eval(done.stdout, {"Case": Case})
    assert case.expect >= 0.3
    assert len(case.completion) < len("<reasoning>x</reasoning>") + 1
    done = shrunk("--reward", "format", "--input", "rows.jsonl", "--row", "2", "--min-score", "7", cwd=folder)
    assert done.returncode == 2
    assert "scores 1, which is not 7 or more" in done.stderr


def test_a_failure_is_shrunk_too(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "from grpo import reward\n@reward(version=1)\ndef mine(completion: str) -> float:\n"
        "    if completion.count('and') == 0:\n        return '0'\n    return 1 / (completion.count('<') != 2)\n",
        encoding="utf-8",
    )
    done = shrunk("--reward", "./mine.py:mine", "--input", "rows.jsonl", "--row", "1", cwd=folder)
    case = eval(done.stdout, {"Case": Case})
    assert sorted(case.completion) == sorted("<<and"), "what fails otherwise is another failure"
    assert case.expect is ...
    assert "ZeroDivisionError" in done.stdout


@pytest.mark.slow
def test_a_completion_of_a_run_is_shrunk(full_run: Path) -> None:
    arguments = ("--reward", "length:unit=characters,minimum=3", "--step", "1", "--index", "0", "--min-score", "0.1")
    done = shrunk(str(full_run), *arguments, cwd=full_run)
    case = eval(done.stdout, {"Case": Case})
    assert 0.1 <= case.expect <= 1.0
    assert len(case.completion) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name RUN with --index, or a file"),
        (("--input", "rows.jsonl"), "--input needs --row N"),
        (("--input", "rows.jsonl", "--row", "9"), "no row on line 9"),
        (("--input", "nowhere.jsonl", "--row", "9"), "No such file"),
        (("nowhere",), "RUN needs --index N"),
        (("rows.jsonl",), "rows.jsonl is a file of rows, and no run: name it with --input rows.jsonl --row N."),
        (("nowhere", "--index", "1"), "does not exist"),
    ],
)
def test_what_cannot_be_found_is_refused(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    done = shrunk("--reward", "format", *arguments, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_what_a_reward_says_as_it_fails_commands_no_terminal(folder: Path) -> None:
    text = "def mine(completion):\n    raise ValueError('\\x1b[31mred\\u202e')\n"
    (folder / "mine.py").write_text(text, encoding="utf-8")
    shrinks = ("shrink", "--reward", "./mine.py:mine", "--input", "rows.jsonl", "--row", "1")
    diff = ("diff", "rows.jsonl", "--group-column", "answer", "--old", "./mine.py:mine", "--new", "length")
    for arguments in (shrinks, diff):
        done = grpo(*arguments, cwd=folder)
        assert "ValueError: red" in done.stderr
        assert not {"\x1b", "\u202e"} & {*done.stdout, *done.stderr}


def test_two_rewards_are_refused_and_not_the_first_forgotten(folder: Path) -> None:
    done = shrunk("--reward", "format", "--reward", "length", "--input", "rows.jsonl", "--row", "1", cwd=folder)
    assert done.returncode == 2
    assert "--reward is given 2 times, and this takes one" in done.stderr


def test_with_a_reward_of_groups_the_others_stay_and_the_case_is_a_group(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "from grpo import reward\n@reward(version=1, scope='group')\n"
        "def mine(completions: list[str], answer: str) -> list[float]:\n"
        "    return [float(answer in text) * len(set(completions)) for text in completions]\n",
        encoding="utf-8",
    )
    rows = [{"completion": text, "answer": "7", "group": group} for text, group in (("a 7 b", 1), ("7", 2), ("7", 1))]
    (folder / "groups.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    done = shrunk("--reward", "./mine.py:mine", "--input", "groups.jsonl", "--row", "1", cwd=folder)
    case = eval(done.stdout, {"Case": Case})
    [text, other] = case.completion
    assert (len(text), "7" in text, other) == (2, True, "7"), "without the second character both would be one text"
    assert (case.row, case.expect) == ({"answer": "7"}, [2.0, 2.0])


@pytest.mark.slow
def test_the_other_members_of_a_run_stay_too(full_run: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from grpo import reward\n@reward(version=1, scope='group')\n"
        "def mine(completions: list[str]) -> list[float]:\n    return [float(len(completions))] * len(completions)\n",
        encoding="utf-8",
    )
    done = shrunk(str(full_run), "--reward", f"{file}:mine", "--step", "1", "--index", "3", cwd=full_run)
    case = eval(done.stdout, {"Case": Case})
    assert (len(case.completion), case.completion[1], case.expect) == (2, "", [2.0, 2.0])
