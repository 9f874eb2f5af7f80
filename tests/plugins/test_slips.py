"""What newcomers write: a file without a name, a decorator without parentheses, two things of one name."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo import SpecError, Verdict, reward, to_trl, verifier
from grpo.plugins.errors import AmbiguousName, PluginNotFound, UsageError
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
    with pytest.raises(AmbiguousName, match=r"offers 2 rewards: first, second\. Name one, as in \./mine\.py:first"):
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


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "@reward(verison=1)\ndef mine(completion: str) -> float: ...",
            r"unexpected keyword argument 'verison'(\. Did you mean 'version'\?)? \(at .*bad\.py:2\)",
        ),
        (
            "@reward(version=1, range=(2.0, 1.0))\ndef mine(completion: str) -> float: ...",
            r"range \(2\.0, 1\.0\) must be \(lowest, highest\).*bad\.py:2",
        ),
        (
            "@reward(version=1, range=1)\ndef mine(completion: str) -> float: ...",
            r"range 1 must be \(lowest, highest\).*bad\.py:2",
        ),
        (
            "@reward(version=1, cases=[('a', {}, 1.0)])\ndef mine(completion: str) -> float: ...",
            r"cases must be a tuple of Case, got .*tuple.*bad\.py:2",
        ),
        ("@reward\ndef mine(text): ...", r"'mine': the first parameter must be named 'completion'.*bad\.py:2"),
        ("@reward\ndef mine(prompt, completion): ...", r"Put it first: \(completion, prompt\)\. \(at"),
        ("@reward\ndef mine(solution_str): ...", r"called from one: def .*: return mine\(\.\.\.\)\. \(at"),
        ("mine = reward(version=1)(lambda text: 1.0)", r"first parameter must be named 'completion'.*bad\.py:2"),
    ],
)
def test_a_bad_reward_of_a_file_says_what_is_wrong_with_it(folder: Path, source: str, words: str) -> None:
    (folder / "bad.py").write_text(f"from grpo import reward\n{source}\n")
    with pytest.raises(UsageError, match=f"cannot be executed: .*{words}"):
        Host(()).reward("./bad.py:mine")
