"""Expressions made to hang or exhaust computer algebra: wrong by their shape, or undecided at the limit, anywhere."""

import asyncio
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE, little_work

from grpo.core.scoring.scorer import Scorer
from grpo.plugins._spec.binding import BoundVerifier
from grpo.plugins.errors import PluginError
from grpo.plugins.types import Completion
from grpo.rewards.math import process as math_process
from grpo.rewards.math.answer import statement
from grpo.rewards.math.choice import chosen_letter
from grpo.rewards.math.claim import claim, groups, is_set
from grpo.rewards.math.cue import behind_cue, words_behind_cue
from grpo.rewards.math.guard import hostile
from grpo.rewards.math.normalize import normalized
from grpo.rewards.math.notations import same_numeral
from grpo.rewards.math.number import same_number, term
from grpo.rewards.math.objection import objection
from grpo.rewards.math.process import Undecided, compare
from grpo.rewards.math.verifier import math
from grpo.rewards.numbers.numerals import read_number

SIZE = 240_000
"""A linear reading of so many characters takes milliseconds, a quadratic one minutes."""
HEADS = ["", "<answer>", "\\boxed{", "the final answer is ", "</think>", "$"]
PIECES = [
    *("9", "9,", "1 ", "1 or ", "x^", "x^{", "2^2", "-", "(", "{", "}", "[", "|", "!", "9!", "1e9", "=", "x=1, "),
    *("\n", " ", "$", "$$", "$x$", "$x$ or ", "\\[", "\\(", "\\boxed{", "\\boxed{1} ", "\\boxed{}", "\\text{"),
    *("\\text{a}", "\\sqrt{", "\\frac{", "\\frac{d}{", "\\binom{", "\\quad", "\\left", "or ", "and ", "not ", "A "),
    *("A or ", "(A)", "answer is ", "?", "<answer>", "</answer>", "####", "#### 1\n", "final answer"),
    *("A:\n", "A: x\n", "answer\n", "answer: ", "because ", "which is ", ", the ", "** ", "<|a|>", "\u00b1 ", "<<"),
    *("final answer is ", "the ", ". ", "\\", "\x00", "\ud800"),
]
OPTIONS = {"precision": 6, "strict": True, "relations": False}
SLOW, BESIDE = r"x^5+y^5+z^5=x^4y+\sin(x)", r"x^7+y^5+\cos(z)=3"
"""Two equations that sympy solves for minutes to compare, and that look harmless."""

SLOW_ALONE = r"\int \frac{\sin(x)^{9}}{1+x^5+e^x} dx"

REFUSED = [
    "9**9**9",
    r"\boxed{9**9**9}",
    r"\boxed{9^{9^{9}}}",
    r"\boxed{x^{10^{10^{10}}}}",
    r"\boxed{(x+1)^{10^9}}",
    r"\boxed{10^{-10^{10}}}",
    r"\boxed{" + "2^" * 20 + "2}",
    r"\boxed{100000!}",
    r"\boxed{((10!)!)!}",
    r"\boxed{\binom{1000000}{500000}}",
    r"\boxed{" + "9" * 10**6 + "}",
    r"\boxed{0." + "3" * 10**6 + "}",
    r"\boxed{" + ",".join(["999"] * 10**5) + "}",
    "9" * 10**6,
    r"\boxed{" + "x^" * 1000 + "2}",
    r"\boxed{" + "x^{" * 12 + "2" + "}" * 12 + "}",
    r"\boxed{" + "x(" * 900,
    "The answer is " + "9" * 5000,
    "The answer is " + "((((" * 30 + "x+1",
    r"\boxed{" + r"\sqrt{2+" * 50 + "1" + "}" * 50 + "}",
    r"\boxed{" + r"\sqrt{2+" * 8 + r"\sqrt{3}" + "}" * 8 + "}",
    r"\boxed{" + "(" * 1000 + "1" + ")" * 1000 + "}",
    r"\boxed{" + "(" * 10**5 + "1" + ")" * 10**5 + "}",
    r"\boxed{" + "{" * 10**6,
    r"\boxed{\begin{pmatrix}" + r"\\".join("&".join("1" * 100) for _ in range(100)) + r"\end{pmatrix}}",
    r"\boxed{" + "+".join(f"x^{{{i}}}" for i in range(2000)) + "}",
]


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:30])
def test_a_degenerate_answer_is_wrong_at_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math_process, "_places", None)  # no process may compare
    for gold in ("72", "9", "x+1"):
        with little_work(text[:60]):
            verdict = math(text, gold)
        assert verdict.ok is False, verdict
        assert verdict.reason.startswith(("not compared: ", "differs from the number "))


def test_a_degenerate_gold_is_nobodys_fault() -> None:
    gold = "(x+1)^{100000000}"
    assert math(f"\\boxed{{{gold}}}", gold).ok is True
    assert math("\\boxed{(1+x)^{100000000}}", gold).ok is None


@pytest.mark.slow
def test_an_answer_that_exhausts_the_limit_is_wrong_and_a_gold_that_does_is_not_its_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(math_process, "WAIT", PATIENCE)
    verdict = math(f"\\boxed{{{SLOW}}}", BESIDE, limit=1.0)
    assert verdict.ok is False, verdict
    assert "time limit" in verdict.reason
    verdict = math("\\boxed{x^2}", SLOW_ALONE, limit=1.0)
    assert verdict.ok is None, verdict
    assert "time limit" in verdict.reason
    assert math("\\boxed{1+x}", "x+1", limit=PATIENCE).ok is True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "gold"), [("(x+y+z+1)^{500}", "x^2+y"), ("x^2", "(x+y+z+1)^{500}"), ("(x+1)^{999}", "72")]
)
def test_a_high_power_is_compared_without_being_expanded(text: str, gold: str) -> None:
    verdict = math(f"\\boxed{{{text}}}", gold, limit=1.0)
    assert verdict.ok is False, verdict
    assert "time limit" not in verdict.reason


@pytest.mark.slow
def test_the_limit_holds_in_threads_and_inside_a_running_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(math_process, "WAIT", PATIENCE)
    found = {}

    def judge(name: str) -> None:
        found[name] = (
            math(f"\\boxed{{{SLOW}}}", BESIDE, limit=1.0).ok,
            math("\\boxed{1+x}", "x+1", limit=PATIENCE).ok,
        )

    async def inside() -> None:
        judge("loop")

    threads = [threading.Thread(target=judge, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    asyncio.run(inside())
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys((0, 1, "loop"), (False, True))


@pytest.mark.slow
def test_a_forked_process_starts_its_own_comparisons() -> None:
    assert math("\\boxed{1+x}", "x+1").ok is True
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        right = b"?"
        try:
            right = b"1" if math("\\boxed{2+x}", "x+2").ok else b"0"
        finally:
            os.write(writer, right)
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b"1"
    os.waitpid(child, 0)
    assert math("\\boxed{3+x}", "x+3").ok is True


@pytest.mark.slow
def test_a_process_that_was_killed_is_replaced_and_the_answer_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    idle: list[Any] = []
    monkeypatch.setattr(math_process, "_idle", idle)
    assert compare("same", "x", "$x$", **OPTIONS) is True
    [process] = idle
    process._child.kill()
    process._child.wait(PATIENCE)
    assert compare("same", "x", "$x$", **OPTIONS) is True
    assert idle != [process]
    idle.pop().close()


@pytest.mark.slow
def test_a_comparison_whose_processes_are_all_killed_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(process: Any) -> None:
        started(process)
        process._child.kill()
        process._child.wait(PATIENCE)

    started = math_process._Process.__init__
    monkeypatch.setattr(math_process, "_idle", [])
    monkeypatch.setattr(math_process._Process, "__init__", killed)
    with pytest.raises(Undecided):
        compare("same", "x", "$x$", **OPTIONS)


@pytest.mark.slow
def test_the_limit_counts_work_and_not_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    idle: list[Any] = []
    monkeypatch.setattr(math_process, "_idle", idle)
    assert compare("same", "x", "$x$", **OPTIONS) is True
    [process] = idle
    pid = process._child.pid
    monkeypatch.setattr(math_process, "WAIT", 200)
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(1.0, os.kill, (pid, signal.SIGCONT)).start()
    assert compare("same", "x", "$x$", seconds=0.6, **OPTIONS) is True
    monkeypatch.setattr(math_process, "WAIT", 0.1)
    os.kill(pid, signal.SIGSTOP)
    assert compare("same", "x", "$x$", seconds=PATIENCE, **OPTIONS) is True
    assert process._child.reaped
    idle.pop().close()


def test_missing_libraries_are_a_failure_and_no_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "math_verify.py").write_text("raise ImportError('no math_verify here')")
    monkeypatch.setattr(math_process, "_idle", [])
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PluginError, match="no math_verify here"):
        math("\\boxed{1+x}", "x+1")


@pytest.mark.slow
def test_the_engine_survives_hostile_rows() -> None:
    texts = [f"\\boxed{{{SLOW}}}", "\\boxed{9^{9^{9}}}", "\\boxed{1+x}", "\\boxed{2+x}"]
    rows = [Completion(text, row={"answer": gold}) for text, gold in zip(texts, [BESIDE, *["x+1"] * 3], strict=True)]
    with Scorer([BoundVerifier(math, "grpo-kit", options={"limit": 1.0}, timeout=math.timeout)], workers=1) as scorer:
        judged = scorer.judge(rows)["math"]
        assert not scorer.first_failure
    verdicts = [judgement.verdict.ok for judgement in judged]
    assert verdicts[0] is not True
    assert verdicts[1:] == [False, True, False]


@pytest.mark.slow
@pytest.mark.parametrize("head", [*HEADS[:2], *(pytest.param(head, marks=pytest.mark.nightly) for head in HEADS[2:])])
def test_what_stands_before_computer_algebra_takes_linear_time(head: str) -> None:
    for text in (head + piece * (SIZE // len(piece)) for piece in PIECES):
        with little_work(text[:60]):
            prediction = statement(text)
            words_behind_cue(text)
            if prediction is not None:
                behind_cue(prediction, "72")
                groups(prediction.text)
                same_number(
                    replace(prediction, parts=tuple(map(normalized, prediction.parts))), read_number("3.14"), text, 6
                )
                same_numeral("1011_2", prediction.text)
                term(text)
                is_set(text)
                chosen_letter(prediction)
                if not any(map(hostile, prediction.parts or (claim(prediction),))):
                    objection(prediction, "72", read_number("72"), question="What is 72?", evaluated=True)
