"""What cheats the graders of reasoning-gym is known, written down and refused; the table is what a probe finds."""

# ruff: noqa: RUF001
from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from grpo.envs.reasoning_gym.holes import HOLES, WEAK, installed_version, probed, warning

if importlib.util.find_spec("reasoning_gym") is None and "GRPO_REQUIRE_REASONING_GYM" not in os.environ:
    pytest.skip("reasoning-gym is not installed; in a checkout: make reasoning-gym", allow_module_level=True)

pytestmark = [pytest.mark.reasoning_gym, pytest.mark.slow]

RUN_AS_PYTHON = sorted(name for name, hole in HOLES.items() if "runs an answer as Python" in hole)
OTHERS = ("ab", "basic_arithmetic", "calendar_arithmetic", "graph_color", "jugs", "tsumego", "tower_of_hanoi")
EVERY = [*HOLES, *OTHERS]
TAKES_LONG = {"binary_matrix", "coin_flip", "polynomial_multiplication"}
TAKES_LONG |= {"intermediate_integration", "simple_integration"}
PROBED = [pytest.param(name, marks=[pytest.mark.nightly] * (name in TAKES_LONG)) for name in EVERY]


def asked(member: str, answer: str, index: int = 0, **how: Any) -> tuple[float, str]:
    """The score of an answer and the reason for none."""
    from grpo.envs.reasoning_gym.env import items_of

    reply = items_of(member, "train", 3, 5, {}).ask(answer, index, **how)
    return (0.0, reply.reason) if reply.value is None else (reply.value["score"], reply.value["refused"])


def test_the_table_is_of_the_installed_version_and_knows_every_dataset() -> None:
    from reasoning_gym.factory import DATASETS

    assert probed()["version"] == installed_version(), "probe it anew: python -m grpo.envs.reasoning_gym.probe"
    assert probed()["datasets"] == sorted(set(DATASETS) - {"composite"})
    assert set(probed()["full_marks"]) <= set(HOLES), "a hole that nothing is done about"
    assert set(HOLES) | set(WEAK) <= set(probed()["datasets"])


def test_what_is_refused_has_a_rule_and_the_other_way_round() -> None:
    from grpo.envs.reasoning_gym.guest import AFTER, BEFORE

    assert {*BEFORE, *AFTER} == set(HOLES)


@pytest.mark.parametrize("member", PROBED)
def test_no_answer_that_solves_nothing_gets_full_marks(member: str) -> None:
    from grpo.envs.reasoning_gym.probe import any_text, full_marks, plays

    assert full_marks(plays(member, as_published=False)) == []
    if member in OTHERS:
        published = plays(member, as_published=True)
        assert full_marks(published) == probed()["full_marks"].get(member, [])
        assert any_text(published) == probed()["any_text"].get(member, 0.0)


@pytest.mark.parametrize("member", RUN_AS_PYTHON)
def test_no_grader_runs_an_answer(member: str, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    for program in (f"__import__('pathlib').Path('{proof}').touch()", f"[open('{proof}','w').write('x')]"):
        score, reason = asked(member, program)
        assert score == 0.0
        assert reason
        assert asked(member, program, as_published=True)[0] < 1.0
    assert not proof.exists()


@pytest.mark.parametrize("member", sorted(HOLES))
def test_honest_answers_pass_every_rule(member: str) -> None:
    from grpo.envs.reasoning_gym.env import items_of

    items = items_of(member, "test", 6, 3, {})
    golds = [(index, items.known(index)) for index in range(6)]
    for index, gold in golds:
        assert gold is not None
        reply = items.ask(gold, index)
        assert reply.value == {"score": 1.0, "refused": ""}, gold


def test_rules_refuse_what_cheats_and_nothing_that_is_only_written_otherwise() -> None:
    from grpo.envs.reasoning_gym.guest import BEFORE

    puzzle = {"answer": "8*(5*1 - 2)", "metadata": {"numbers": [8, 5, 1, 2]}}
    assert BEFORE["puzzle24"]("8 * (5 * 1 - 2)", puzzle) == ""
    assert BEFORE["puzzle24"]("(8 - 2 + 1) * 5", puzzle) == "it makes 35"
    assert BEFORE["puzzle24"]("8*6/2*1", puzzle) == "it does not use the numbers of the problem"
    assert BEFORE["puzzle24"]("49/2+0*1", {"answer": "", "metadata": {"numbers": [49, 2, 0, 1]}}) == "it makes 24.5"
    for text in ("x**2/2 + c", "x**2/2 + const", "(x**2)/2 + C", "sin (x)*E**(2*x) + K", "-log(Abs(x - 1.5)) + pi"):
        assert BEFORE["simple_integration"](text, {}) == "", text
    for text in (
        "Integral(x, x)",
        "integrate (x, x)",
        "(Integral)(x, x)",
        "x.diff()",
        "lambda x",
        "[x]",
        "a__b",
        "x; y",
    ):
        assert BEFORE["simple_integration"](text, {}), text
    assert BEFORE["polynomial_multiplication"]("expand(x)", {})
    assert BEFORE["polynomial_multiplication"]("x**2*y + 3*x - (2)", {}) == ""


def test_a_conclusion_is_more_than_the_premises_one_by_one() -> None:
    from grpo.envs.reasoning_gym.guest import AFTER

    about = {"variables": ["P", "Q", "R"], "premises": ["(P ∨ Q)", "(¬Q ∧ R)"], "example_answer": "(¬Q ∨ P)"}
    chain, problem = AFTER["propositional_logic"], {"metadata": about}
    weak = ["P ∨ Q", "(¬Q ∧ R)", "R", "¬Q", "R ∨ P", "Q → R", "(P ∨ Q) ∧ R", "¬(¬(P ∨ Q) ∨ ¬(¬Q ∧ R))"]
    for said in (*weak, "((P ∨ Q) ∧ (¬Q ∧ R)) ∨ P", "P ∨ ¬P", "(P ∨ Q) ↔ (R ∨ ¬R)", "P ∨ x"):
        assert chain(said, problem), said
    for said in ("¬¬P", "P ∧ R", "P ↔ R", "P ∧ ¬Q", "(¬Q ∨ P)", "¬Q ∨ P"):
        assert chain(said, problem) == "", said
    assert chain(" ↔ ".join(["(P ∧ Q)"] * 40), problem)
    letters = "ABCDEFGHIJKLMN"
    long = {"metadata": {"variables": [*letters], "premises": ["(A ∧ B)"], "example_answer": "A"}}
    assert chain(" ↔ ".join(letters), long) == "it is too long to tell what it concludes"


def test_everything_follows_from_premises_that_contradict_each_other_so_only_the_known_conclusion_counts() -> None:
    from grpo.envs.reasoning_gym.guest import AFTER

    about = {"variables": ["P", "Q"], "premises": ["(P ∨ P)", "¬P", "Q"], "example_answer": "(Q ∨ P)"}
    assert AFTER["propositional_logic"]("P ∧ ¬P", {"metadata": about})
    assert AFTER["propositional_logic"]("Q ∨ P", {"metadata": about}) == ""


@pytest.mark.parametrize(
    ("member", "answer"),
    [
        ("countdown", "9**9**9**9"),
        ("rubiks_cube", "-987654321"),
        ("coin_flip", "1e999999999"),
        ("power_function", "1e999999999"),
        ("jugs", "[" * 100_000),
        ("chain_sum", "9" * 3_000_000),
    ],
)
def test_an_answer_that_a_grader_cannot_stand_is_wrong_and_soon(member: str, answer: str) -> None:
    assert asked(member, answer, seconds=2.0)[0] <= 0.01
    assert asked(member, answer, seconds=2.0, as_published=True)[0] <= 0.05


@pytest.mark.parametrize("member", ["arc_1d", "group_anagrams", "string_manipulation", "spell_backward", "word_ladder"])
def test_a_grader_in_the_sandbox_scores_as_it_does_here(member: str) -> None:
    """Datasets that hold functions, or word lists that do not go along with every batch."""
    from grpo.envs.reasoning_gym.env import items_of

    items = items_of(member, "train", 3, 5, {})
    for index in range(3):
        gold, other = items.known(index) or "", items.known((index + 1) % 3) or ""
        for text in (gold, other, f"{gold} and more", gold[:-1], "x", "[]"):
            here = float(items._data.score_answer(text, items.entry(index)))
            assert asked(member, text, index, as_published=True) == (pytest.approx(here), ""), text


def test_answers_beside_a_hanging_one_keep_their_scores() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from grpo.envs.reasoning_gym.env import items_of

    items = items_of("countdown", "train", 3, 5, {})
    gold = items.known(0) or ""
    how: dict[str, Any] = {"as_published": True, "seconds": 2.0}
    texts = [gold, "9**9**9**9", gold, "1 + 1", "__import__('os').kill(1, 9)", gold] * 3
    with ThreadPoolExecutor(len(texts)) as threads:
        replies = list(threads.map(lambda text: items.ask(text, 0, **how), texts))
    scores = [0.0 if reply.value is None else reply.value["score"] for reply in replies]
    assert scores == [1.0, 0.0, 1.0, 0.05, scores[4], 1.0] * 3
    assert scores[4] < 1


def test_a_broken_sandbox_is_a_failure_and_never_a_zero() -> None:
    from grpo.envs.graders.remote import Graders
    from grpo.envs.reasoning_gym import guest
    from grpo.plugins.errors import TransientError
    from grpo.plugins.sandbox_job import JobResult

    for result in (JobResult("overloaded"), JobResult("signalled", signal=9), JobResult("exited", exit_code=1)):
        broken = Graders("reasoning_gym", guest, lambda job, result=result: result, seconds=1.0, memory=2**30)  # type: ignore[misc]
        with pytest.raises(TransientError):
            broken.ask("an answer", ["a known one"])


def test_a_process_with_limits_does_where_there_is_no_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    proof = tmp_path / "proof"
    write = f"[open('{proof}','w').write('x')]"
    leak = "[open('/proc/self/environ').read().index('SOME_API_KEY')]"
    how: dict[str, Any] = {"sandbox": "process", "as_published": True}
    assert asked("countdown", "1 + 1", **how) == (0.05, "")
    for program in (write, leak, "9**9**9**9", "__import__('os').kill(__import__('os').getpid(), 11)"):
        assert asked("countdown", program, **how)[0] <= 0.05
    assert asked("string_insertion", "[open('/proc/self/environ').read().count('SOME_API_KEY') and 1/0]", **how)[0] == 0
    assert not proof.exists() or proof.read_text() == ""
    assert asked("countdown", "1 + 1", **how) == (0.05, "")


def test_a_newer_version_is_told_that_nobody_probed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo.envs.reasoning_gym.holes.installed_version", lambda: "0.1.99")
    assert "0.1.99" in warning("chain_sum")
