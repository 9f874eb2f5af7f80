"""What newcomers write: a file without a name, a decorator without parentheses, two things of one name."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo import SpecError, reward, to_trl, verifier
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


def test_a_decorator_without_parentheses_says_where_they_belong() -> None:
    def near(completion: str) -> float:
        return 1.0

    for decorate in (reward, verifier):
        with pytest.raises(SpecError, match=r"stands above near without parentheses\. Write @\w+\(\), or"):
            decorate(near)  # type: ignore[call-overload]


@pytest.mark.parametrize("size", [True, 0, -1, 2.0, "8"])
def test_a_group_size_that_is_no_whole_number_is_refused(size: object) -> None:
    with pytest.raises(UsageError, match="it is a whole number of completions, as in GRPOConfig"):
        to_trl("proximity", num_generations=size)  # type: ignore[arg-type]


def test_two_rewards_of_one_name_are_answered_without_a_flag() -> None:
    with pytest.raises(UsageError, match=r"proximity:as=proximity_2, or in Python \{'name'") as caught:
        Host.discover().rewards(["proximity", "proximity"])
    assert "--reward" not in str(caught.value)
