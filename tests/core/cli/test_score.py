"""`grpo score` and `grpo verify` as users run them."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

PLUGINS = """
import os
from grpo import Verdict, reward, verifier

@reward(version=1, isolation="inline")
def size(completion: str, answer: str) -> float | None:
    print("python noise")
    os.system("echo low noise")
    return None if completion == "skip" else float(len(completion))

@reward(version=1)
def crash(completion: str) -> float:
    if completion == "bad":
        os._exit(1)
    return 1.0

def forgot(completion: str, answer: str):
    answer in completion

@verifier(version=1)
def same(completion: str, answer: str) -> Verdict:
    if completion == "bad":
        raise ValueError("no")
    return Verdict(None if completion == "skip" else completion == answer, completion)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(PLUGINS)
    return tmp_path


def grpo(folder: Path, *arguments: str, stdin: str | bytes = b"") -> subprocess.CompletedProcess[bytes]:
    data = stdin.encode() if isinstance(stdin, str) else stdin
    return subprocess.run([sys.executable, "-m", "grpo", *arguments], input=data, capture_output=True, cwd=folder)


def on_a_terminal(folder: Path, *arguments: str) -> tuple[str, str]:
    """What a command prints on a terminal, and on standard error."""
    primary, secondary = pty.openpty()
    command = [sys.executable, "-m", "grpo", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=secondary, stderr=subprocess.PIPE, cwd=folder)
    os.write(secondary, b"-end-")
    output = b""
    while not output.endswith(b"-end-"):
        output += os.read(primary, 65536)
    for end in (primary, secondary):
        os.close(end)
    assert done.returncode == 0, done.stderr
    return output.decode().removesuffix("-end-"), done.stderr.decode()


def jsonl(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def read(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


@pytest.mark.core
def test_rows_come_back_in_order_with_their_outcomes_and_a_summary(folder: Path) -> None:
    rows = [{"completion": text, "answer": "a", "n": i} for i, text in enumerate(["a", "skip", "bad", "abc"])]
    (folder / "in.jsonl").write_text(jsonl(*rows, {"completion": "x"}))
    done = grpo(
        folder,
        *("score", "--reward", "./mine.py:size:as=long", "--reward", "./mine.py:crash"),
        *("--input", "in.jsonl", "--output", "out.jsonl"),
    )
    assert done.returncode == 0, done.stderr
    assert b"low noise" in done.stdout  # only the results' own channel is kept clean
    out = read((folder / "out.jsonl").read_bytes())
    assert [{k: v for k, v in row.items() if k != "scores"} for row in out] == [*rows, {"completion": "x"}]
    assert out[0]["scores"]["long"] == {"outcome": "score", "score": 1.0, "reason": None}
    assert out[1]["scores"]["long"] == {"outcome": "abstain", "score": None, "reason": None}
    assert out[2]["scores"]["crash"]["outcome"] == "failure"
    assert "row 3: its worker process ended with exit code 1" in out[2]["scores"]["crash"]["reason"]
    assert "needs the column 'answer'" in out[4]["scores"]["long"]["reason"]
    table = [line.split() for line in done.stderr.decode().splitlines()]
    assert ["reward", "rows", "mean", "std", "abstain", "failure"] in table
    assert ["long", "5", "2.3333", "1.1547", "1", "1"] in table
    assert ["crash", "5", "1.0000", "0.0000", "0", "1"] in table


def test_stdout_holds_the_results_and_nothing_that_plugins_print(folder: Path) -> None:
    done = grpo(folder, "score", "--reward", "./mine.py:size", stdin=jsonl({"completion": "é\ud800", "answer": "a"}))
    assert done.returncode == 0, done.stderr
    (row,) = read(done.stdout)
    assert (row["completion"], row["scores"]["size"]["score"]) == ("é\ud800", 2.0)
    assert done.stderr.count(b"python noise") == done.stderr.count(b"low noise") == 1


def test_a_built_in_reward_without_a_score_is_said_to_lack_its_column_and_no_return(folder: Path) -> None:
    done = grpo(folder, "score", "--reward", "proximity", stdin=jsonl({"completion": "a", "answer": None}))
    assert done.returncode == 0, done.stderr
    assert b"note: reward 'proximity' abstained on every row: the column 'answer' is null." in done.stderr


def test_a_reward_without_a_score_is_said_with_the_reason(folder: Path) -> None:
    done = grpo(folder, "score", "--reward", "./mine.py:forgot", stdin=jsonl({"completion": "a", "answer": "a"}))
    assert done.returncode == 0, done.stderr
    assert (
        b"note: reward 'forgot' abstained on every row: it returned None, as a function without a `return` does."
        in done.stderr
    )


def test_verdicts_of_every_kind_and_their_summary(folder: Path) -> None:
    rows = [{"completion": text, "answer": "a"} for text in ["a", "b", "skip", "bad"]]
    done = grpo(folder, "verify", "--verifier", "./mine.py:same", stdin=jsonl(*rows, {"completion": "a"}))
    assert done.returncode == 0, done.stderr
    verdicts = [row["verdict"] for row in read(done.stdout)]
    assert verdicts[0] == {"outcome": "verdict", "ok": True, "extracted": "a", "reason": None}
    assert [verdict["ok"] for verdict in verdicts] == [True, False, None, None, None]
    assert [verdict["outcome"] for verdict in verdicts] == ["verdict"] * 3 + ["failure"] * 2
    assert "ValueError: no" in verdicts[3]["reason"]
    assert ["same", "5", "1", "1", "1", "2"] in [line.split() for line in done.stderr.decode().splitlines()]


@pytest.mark.core
def test_a_plugin_that_fails_on_every_row_ends_with_exit_1_in_its_own_words(folder: Path) -> None:
    scored = grpo(folder, "score", "--reward", "code", stdin=jsonl({"completion": "a"}, {"completion": "b"}))
    assert scored.returncode == 1
    assert len(read(scored.stdout)) == 2
    assert b"grpo: code failed, and no row has a score" in scored.stderr
    assert b"the row has no tests" in scored.stderr
    assert b"Traceback" not in scored.stderr
    rows = jsonl({"completion": "skip", "answer": "a"}, {"completion": "a"})
    abstained = grpo(folder, "score", "--reward", "./mine.py:size", stdin=rows)
    assert abstained.returncode == 1
    assert b"grpo: size failed, and no row has a score" in abstained.stderr
    judged = grpo(folder, "verify", "--verifier", "./mine.py:same", stdin=jsonl({"completion": "bad", "answer": "a"}))
    assert judged.returncode == 1
    assert b"Traceback" in judged.stderr


def test_messages_are_scored_by_their_last_assistant_message(folder: Path) -> None:
    messages = [
        {"role": "assistant", "content": "first"},
        {"role": "user", "content": "and?"},
        {"role": "assistant", "content": [{"type": "text", "text": "las"}, {"type": "text", "text": "t!"}]},
    ]
    done = grpo(folder, "score", "--reward", "./mine.py:size", stdin=jsonl({"completion": messages, "answer": "a"}))
    (row,) = read(done.stdout)
    assert row["completion"] == messages
    assert row["scores"]["size"]["score"] == 5.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{oops\n", b"it is not JSON"),
        (b'{"completion": "a\n', b"it is not JSON (Unterminated string starting at column 16)"),
        (b"\xff\n", b"it is not UTF-8 (byte 1)"),
        (b"[1]\n", b"it is a JSON list, not an object"),
        (b'{"answer": "a"}\n', b"it has no 'completion'; it has: answer."),
        (b'{"completion": null}\n', b"its completion is null, not text"),
        (b'{"completion": 4}\n', b"its completion is an int"),
        (b'{"completion": [{"role": "user", "content": "a"}]}\n', b"no message with the role 'assistant'"),
        (b"[" * 100_000 + b"\n", b"in.jsonl, line 3"),
    ],
)
def test_a_broken_line_ends_with_exit_2_names_it_and_keeps_the_earlier_rows(
    folder: Path, line: bytes, words: bytes
) -> None:
    good = jsonl({"completion": "a", "answer": "a"}).encode()
    (folder / "in.jsonl").write_bytes(good + b"\n" + line + good)
    done = grpo(folder, "score", "--reward", "./mine.py:crash", "--input", "in.jsonl", "--output", "out.jsonl")
    assert done.returncode == 2
    assert b"in.jsonl, line 3" in done.stderr
    assert words in done.stderr
    assert b"Traceback" not in done.stderr
    assert len(read((folder / "out.jsonl").read_bytes())) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["score", "--reward", "./mine.py:size", "--input", "missing.jsonl"], b"--input missing.jsonl: No such file"),
        (["score", "--reward", "./mine.py:size", "--input", "."], b". is not a run directory"),
        (["score", "--reward", "./mine.py:size", "--input", "broken.jsonl"], b"broken.jsonl, line 1"),
        (["score", "--reward", "./mine.py:nothing", "--input", "good.jsonl"], b"nothing"),
        (["score", "--input", "good.jsonl"], b"--reward"),
        (["verify", "--verifier", "./mine.py:same", "--input", "old.jsonl"], b"--output old.jsonl is the input"),
    ],
)
def test_a_mistake_gets_one_clear_line_and_an_older_output_stays(
    folder: Path, arguments: list[str], words: bytes
) -> None:
    (folder / "good.jsonl").write_text(jsonl({"completion": "a", "answer": "a"}))
    (folder / "broken.jsonl").write_text("{\n")
    (folder / "old.jsonl").write_text(jsonl({"completion": "old", "answer": "a"}))
    done = grpo(folder, *arguments, "--output", "old.jsonl")
    assert done.returncode == 2
    assert words in done.stderr
    assert b"Traceback" not in done.stderr
    assert "old" in (folder / "old.jsonl").read_text()


def test_an_output_that_cannot_be_written_is_said(folder: Path) -> None:
    done = grpo(folder, "score", "--reward", "./mine.py:crash", "--output", "no/out.jsonl", stdin='{"completion": "a"}')
    assert done.returncode == 2
    assert b"--output no/out.jsonl: No such file or directory" in done.stderr


def test_what_a_reward_says_as_it_fails_commands_no_terminal(folder: Path) -> None:
    text = "def raises(completion):\n    raise ValueError('\\x1b[31mred\\u202e')\n"
    (folder / "loud.py").write_text(text, encoding="utf-8")
    done = grpo(folder, "score", "--reward", "./loud.py:raises", stdin=jsonl({"completion": "a"}))
    assert b"ValueError: red" in done.stderr
    assert b"\x1b" not in done.stderr
    assert "\u202e" not in done.stderr.decode()


def test_two_verifiers_are_refused_and_not_the_first_forgotten(folder: Path) -> None:
    done = grpo(folder, "verify", "--verifier", "math", "--verifier", "gsm8k", stdin=jsonl({"completion": "a"}))
    assert done.returncode == 2
    assert b"--verifier is given 2 times, and this takes one" in done.stderr


def test_a_table_is_scored_like_lines_of_json(folder: Path) -> None:
    (folder / "rows.csv").write_text('question,completion,answer\n"6, 12?","7\n2",72\n', encoding="utf-8")
    done = grpo(folder, "verify", "--verifier", "grpo-kit/math", "--input", "rows.csv")
    assert done.returncode == 0
    assert json.loads(done.stdout)["verdict"]["outcome"] == "verdict"
    (folder / "rows.csv").write_text("question,text\na,b\n", encoding="utf-8")
    done = grpo(folder, "verify", "--verifier", "grpo-kit/math", "--input", "rows.csv")
    assert b"rows.csv, line 1: it has no column 'completion'; it has: question, text" in done.stderr
    (folder / "rows.csv").write_text("completion,answer\n4,4\n5\n", encoding="utf-8")
    done = grpo(folder, "verify", "--verifier", "grpo-kit/math", "--input", "rows.csv")
    assert b"rows.csv, line 3: it has 1 value for 2 columns" in done.stderr


def test_what_the_template_opened_belongs_to_the_completion(folder: Path) -> None:
    row = json.dumps({"completion": "6*7=42\n</think>\n42", "answer": "42"})
    (folder / "rows.jsonl").write_text(f"{row}\n", encoding="utf-8")
    words = ("score", "--reward", "format:tags=think", "--input", "rows.jsonl")
    without, opened = grpo(folder, *words), grpo(folder, *words, "--opened", "<think>\n")
    assert json.loads(without.stdout)["scores"]["format"]["score"] == 0.0
    assert b"1 completion with </think> and without <think>" in without.stderr
    assert json.loads(opened.stdout)["scores"]["format"]["score"] == 1.0
    assert b"note:" not in opened.stderr


def test_no_rows_are_refused(folder: Path) -> None:
    done = grpo(folder, "score", "--reward", "./mine.py:crash")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"stdin has no rows" in done.stderr


@pytest.mark.slow
def test_it_streams(folder: Path) -> None:
    code = textwrap.dedent("""
        import itertools, json, sys
        for n in itertools.count():
            print(json.dumps({"completion": "a", "answer": "a", "n": n}))
        """)
    producer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    scorer = subprocess.Popen(
        [sys.executable, "-m", "grpo", "score", "--reward", "./mine.py:crash"],
        stdin=producer.stdout,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
    )
    assert producer.stdout is not None
    assert scorer.stdout is not None
    assert scorer.stderr is not None
    producer.stdout.close()
    try:
        numbers = [json.loads(scorer.stdout.readline())["n"] for _ in range(1500)]
        scorer.stdout.close()
        errors = scorer.stderr.read()
        scorer.wait(60)
    finally:
        producer.kill()
        scorer.kill()
        producer.wait()
        scorer.stderr.close()
        scorer.wait()
    assert numbers == list(range(1500))
    assert b"Traceback" not in errors


GROUPS = """
from grpo import reward

@reward(version=1, scope="group", range=(0.0, 1.0), isolation="inline")
def shortest(completions: list[str], answer: str) -> list[float | None]:
    return [float(len(text) == min(map(len, completions))) for text in completions]
"""


@pytest.mark.slow
def test_rows_of_one_prompt_are_scored_together_and_the_summary_says_which_they_are(folder: Path) -> None:
    (folder / "groups.py").write_text(GROUPS)
    texts = [("aa", 0), ("b", 0), ("ccc", 1), ("dddd", 1), ("e", 0)]
    rows = [{"completion": text, "answer": "a", "group": group, "step": 1 + (text == "e")} for text, group in texts]
    command = ("score", "--reward", "./groups.py:shortest")
    done = grpo(folder, *command, stdin=jsonl(*rows))
    assert [row["scores"]["shortest"]["score"] for row in read(done.stdout)] == [0.0, 1.0, 1.0, 0.0, 1.0]
    assert b"3 groups: rows with the same step and group" in done.stderr
    done = grpo(folder, *command, "--group-column", "answer", stdin=jsonl(*rows))
    assert [row["scores"]["shortest"]["score"] for row in read(done.stdout)] == [0.0, 1.0, 0.0, 0.0, 1.0]
    assert b"1 group: rows with the same answer" in done.stderr


def test_groups_may_stand_further_apart_than_a_block_of_rows(folder: Path) -> None:
    (folder / "groups.py").write_text(GROUPS)
    first = {"completion": "long", "answer": "", "question": "first"}
    between = [{"completion": "xx", "answer": "", "question": f"{n}"} for n in range(600)]
    rows = [first, *between, {**first, "completion": "s"}]
    done = grpo(folder, "score", "--reward", "./groups.py:shortest", stdin=jsonl(*rows))
    scores = [row["scores"]["shortest"]["score"] for row in read(done.stdout)]
    assert scores == [0.0, *[1.0] * 600, 1.0]


@pytest.mark.slow
def test_rows_whose_groups_are_not_known_are_refused_before_an_older_output_is_lost(folder: Path) -> None:
    (folder / "groups.py").write_text(GROUPS)
    (folder / "out.jsonl").write_text("kept")
    command = ("score", "--reward", "./groups.py:shortest", "--output", "out.jsonl")
    done = grpo(folder, *command, stdin=jsonl({"completion": "a", "answer": "a"}))
    assert (done.returncode, b"Use --group-column" in done.stderr) == (2, True)
    lacking = jsonl({"completion": "a", "group": 1}, {"completion": "a"})
    assert b"stdin, line 2: no column 'group' to group by" in grpo(folder, *command, stdin=lacking).stderr
    broken = jsonl({"completion": "a", "group": 1}) + "{broken"
    assert b"line 2: it is not JSON" in grpo(folder, *command, stdin=broken).stderr
    assert (folder / "out.jsonl").read_text() == "kept"
    done = grpo(folder, "score", "--reward", "./mine.py:crash", "--group-column", "group", stdin="")
    assert b"--group-column is for a reward that scores groups" in done.stderr


@pytest.mark.slow
def test_a_terminal_gets_a_summary_and_the_rows_where_they_are_asked_for(folder: Path) -> None:
    (folder / "in.jsonl").write_text(jsonl({"completion": "a", "answer": "a"}, {"completion": "skip", "answer": "a"}))
    scored = ("score", "--reward", "./mine.py:size", "--input", "in.jsonl")
    output, notes = on_a_terminal(folder, *scored)
    assert [line.split() for line in output.splitlines()[:2]] == [
        ["reward", "rows", "mean", "std", "abstain", "failure"],
        ["size", "2", "1.0000", "-", "1", "0"],
    ]
    assert "--output FILE writes them, --json prints them" in output
    assert "python noise" not in output
    output, notes = on_a_terminal(folder, *scored, "--json")
    assert [row["scores"]["size"]["outcome"] for row in read(output.encode())] == ["score", "abstain"]
    assert ["size", "2", "1.0000", "-", "1", "0"] in [line.split() for line in notes.splitlines()]
    output, notes = on_a_terminal(folder, "verify", "--verifier", "./mine.py:same", "--input", "in.jsonl")
    assert ["same", "2", "1", "0", "1", "0"] in [line.split() for line in output.splitlines()]
    assert re.search(r"not accepted:\s+row 2: undecided\b", output)
    notes = on_a_terminal(folder, *scored, "--output", "out.jsonl")[1]
    assert ["size", "2", "1.0000", "-", "1", "0"] in [line.split() for line in notes.splitlines()]
    assert len(read((folder / "out.jsonl").read_bytes())) == 2
