"""What newcomers write: a file without a name, a decorator without parentheses, two things of one name."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo import Completion, SpecError, Verdict, reward, to_trl, verifier
from grpo.core.scoring.scorer import Scorer
from grpo.plugins.errors import PluginNotFound, UsageError
from grpo.plugins.host import Host

ONE = """
from grpo import reward, verifier, Verdict

@reward(version=1)
def {name}(completion: str) -> float:
    return 1.0
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_that_offers_one_reward_needs_no_name(folder: Path) -> None:
    (folder / "mine.py").write_text(ONE.format(name="only"))
    assert Host(()).reward("./mine.py").name == "only"


def test_a_file_without_a_name_lists_what_it_offers(folder: Path) -> None:
    (folder / "mine.py").write_text(ONE.format(name="first") + ONE.format(name="second"))
    with pytest.raises(PluginNotFound, match=r"offers 2 rewards: first, second\. Name one, as in \./mine\.py:first"):
        Host(()).reward("./mine.py")
    with pytest.raises(PluginNotFound, match=r"offers no verifier: no function in it is decorated with @verifier\(\)"):
        Host(()).verifier("./mine.py")


def test_a_decorator_needs_no_parentheses() -> None:
    def near(completion: str, answer: str) -> bool:
        return answer in completion

    def judged(completion: str) -> Verdict:
        return Verdict(bool(completion))

    assert (reward(near).name, reward(near).version, reward(near)("It is 4", "4")) == ("near", 0, True)
    assert (verifier(judged).name, verifier(judged)("").ok) == ("judged", False)
    assert reward(near) == reward()(near)


def test_a_decorator_of_something_that_is_no_function_says_what_it_takes() -> None:
    for decorate in (reward, verifier):
        with pytest.raises(SpecError, match=r"takes its arguments by name\. Write @\w+\(version=1\)"):
            decorate(0.5)  # type: ignore[call-overload]


@pytest.mark.parametrize("size", [True, 0, -1, 2.0, "8"])
def test_a_group_size_that_is_no_whole_number_is_refused(size: object) -> None:
    with pytest.raises(UsageError, match="it is a whole number of completions, as in GRPOConfig"):
        to_trl("proximity", num_generations=size)  # type: ignore[arg-type]


def test_two_rewards_of_one_name_are_answered_without_a_flag() -> None:
    with pytest.raises(UsageError, match=r"proximity:as=proximity_2, or in Python \{'name'") as caught:
        Host.discover().rewards(["proximity", "proximity"])
    assert "--reward" not in str(caught.value)


MIXED = """
from grpo import Component, reward, rubric

@reward(version=1)
def good(completion: str, answer: str) -> float:
    return float(answer in completion)

@reward(verison=1)
def misspelt(completion: str) -> float:
    return 1.0

@reward(version=1, range=(2.0, 1.0))
def empty_range(completion: str) -> float:
    return 1.0

@reward
def unnamed(text):
    return 1.0

by_call = reward(version=1)(lambda text: 1.0)
uses_one = rubric(name="uses_one", version=1, components=[Component(unnamed)])

def plain(completion, answer):
    return answer in completion
"""


def test_one_bad_reward_of_a_file_leaves_the_others_usable(folder: Path) -> None:
    (folder / "mixed.py").write_text(MIXED)
    right = Completion("It is 4", row={"answer": "4"})
    bound = [Host(()).reward(f"./mixed.py:{name}") for name in ("good", "plain")]
    assert [one.call(right) for one in bound] == [1.0, True]
    with Scorer(bound, retries=0) as scorer:  # a worker process executes the file, too
        assert {name: found[0].score for name, found in scorer.score([right]).items()} == {"good": 1.0, "plain": 1.0}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "misspelt",
            r"unexpected keyword argument 'verison'(\. Did you mean 'version'\?)? \(at .*mixed\.py:8\)\. "
            "The file also offers: good, plain",
        ),
        ("empty_range", r"range \(2\.0, 1\.0\) is empty.*mixed\.py:12"),
        ("unnamed", r"'unnamed': the first parameter must be named 'completion'.*mixed\.py:16"),
        ("by_call", r"first parameter must be named 'completion'.*mixed\.py:20"),
        ("uses_one", r"'unnamed': the first parameter must be named"),
    ],
)
def test_the_bad_reward_of_a_file_says_what_is_wrong_with_it(folder: Path, name: str, words: str) -> None:
    (folder / "mixed.py").write_text(MIXED)
    with pytest.raises(UsageError, match=words):
        Host(()).reward(f"./mixed.py:{name}")


def test_a_file_that_needs_a_refused_name_tells_why_that_was_refused(folder: Path) -> None:
    (folder / "mixed.py").write_text(MIXED + "\nprint(unnamed.version)\n")
    with pytest.raises(UsageError, match=r"cannot be executed: SpecError: 'unnamed': the first parameter"):
        Host(()).reward("./mixed.py:good")
