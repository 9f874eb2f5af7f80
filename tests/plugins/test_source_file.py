"""Plugins from files: found, executed once, and refused in words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo import Completion
from grpo.core.cli.show import find_plugin
from grpo.core.scoring.scorer import Scorer
from grpo.plugins.errors import PluginNotFound, UsageError
from grpo.plugins.host import Host
from grpo.plugins.rubric import parts

SOURCE = """
from __future__ import annotations
from dataclasses import dataclass
from grpo import reward, verifier, Verdict, EnvSpec
import neighbour_of_mine

print("executed")

@dataclass(frozen=True)
class Setting:
    size: int | None = None

@reward(version=3, name="public-name")
def score(completion: str, *, limit: int = 3) -> float:
    return neighbour_of_mine.VALUE * limit

@verifier(version=1)
def judge(completion: str) -> Verdict:
    return Verdict(True)

def plain(completion):
    return 1.0

ENV = EnvSpec("mine", 1, dict)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "neighbour_of_mine.py").write_text("VALUE = 2.0\n")
    (tmp_path / "mine.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("neighbour_of_mine", None)


HOST = Host([])


@pytest.mark.parametrize(
    "text", ["./mine.py:score:limit=4", "mine.py:score@3:limit=4", "./mine.py:public-name:limit=4"]
)
def test_a_decorated_function_of_a_file_is_bound(folder: Path, text: str) -> None:
    bound = HOST.reward(text)
    assert bound.call(Completion("x")) == 8.0
    assert (bound.name, bound.distribution) == ("public-name", str(folder / "mine.py"))


def test_an_environment_and_a_rubric_of_a_file_name_other_plugins_of_it(folder: Path) -> None:
    own = 'import math\nRUBRIC = rubric(name="parts", version=1, doc="d", components=[Component("public-name")])\n'
    env = 'EnvSpec("mine", 1, dict, rewards=("public-name:limit=4", "math"), verifier="judge")'
    source = SOURCE.replace('EnvSpec("mine", 1, dict)', env) + f"from grpo import Component, rubric\n{own}"
    (folder / "mine.py").write_text(source)
    host = Host.discover()
    bound = host.env("./mine.py:ENV")
    verifier = host.default_verifier(bound)
    assert verifier is not None
    places = [plugin.distribution for plugin in (*host.default_rewards(bound), verifier)]
    file = str(folder / "mine.py")
    assert places == [file, "grpo-kit", file]  # the module that it imports is no reward
    assert [part.distribution for part in parts(host.reward("./mine.py:RUBRIC"))] == [file, file]


def test_an_absolute_path_works_from_anywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert HOST.reward(f"{folder}/mine.py:score").call(Completion("x")) == 6.0


def test_every_kind_can_come_from_a_file(folder: Path) -> None:
    assert HOST.verifier("./mine.py:judge").name == "judge"
    assert HOST.env("./mine.py:ENV").make() == {}


def test_a_file_is_executed_once_until_it_changes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine.py").write_text(SOURCE + "\nONCE = 1\n")
    HOST.reward("./mine.py:score")
    HOST.verifier("./mine.py:judge")
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("executed")) == ("", 1)
    (folder / "mine.py").write_text(SOURCE.replace("version=3", "version=4"))
    assert HOST.reward("./mine.py:score").spec.version == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("./none.py:score", "no file './none.py'"),
        ("./mine.py:scor", "Did you mean 'score'?"),
        ("./mine.py:nothing", "The file offers: score, plain."),
        ("./mine.py:judge", "expected a function, or what @reward makes of one, got the verifier 'judge'"),
        ("./mine.py:score@9", "the file has version 3"),
        ("./mine.py:score:limt=3", "Did you mean 'limit'?"),
    ],
)
def test_a_wrong_file_or_function_is_refused_in_words(folder: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        HOST.reward(text)
    assert words in str(caught.value)


def test_a_class_is_told_how_to_become_an_environment(folder: Path) -> None:
    (folder / "game.py").write_text("class Game:\n    pass\n")
    with pytest.raises(UsageError) as caught:
        HOST.env("./game.py:Game")
    assert str(caught.value) == (
        "./game.py:Game is not an env: expected a class of gymnasium.Env, or what @env makes of a function, got the "
        "class 'Game'; make a spec of it: "
        "env(version=1)(Game) (one that is registered with gymnasium is gym:./game.py:ID)."
    )


@pytest.mark.parametrize(
    "source", ["def f(:", "raise ValueError('no luck')", "import sys\nsys.exit(1)", "import nope_nope"]
)
def test_a_file_that_cannot_be_executed_is_refused_and_forgotten(folder: Path, source: str) -> None:
    (folder / "torn.py").write_text(source)
    before = set(sys.modules)
    with pytest.raises(UsageError, match=r"torn\.py cannot be executed: \w+"):
        HOST.reward("./torn.py:f")
    assert not [name for name in set(sys.modules) - before if name.startswith("grpo_file_")]


def test_a_missing_file_is_not_found(folder: Path) -> None:
    with pytest.raises(PluginNotFound):
        HOST.env("./none.py:ENV")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("from grpo import env\n@env\ndef f():\n    return 1.0\n", r"Write @env\(\), or @env\(version=1\)"),
        ("from grpo import reward\nreward(1.0)\n", r"Write @reward\(version=1\) above the function.*slip\.py:2"),
        ("from grpo import reward\nreward(version=1)(object())\n", "is not a function and cannot be called"),
        ("from grpo import reward\nreward(version=1)(dict)\n", r"dict is a class. Give an object of it: dict\("),
        (
            "from grpo import reward\nclass A:\n    @reward(version=1)\n    def f(self, completion): ...\n",
            r"'A\.f': the first parameter must be named 'completion'.* A method cannot be one.*slip\.py:3",
        ),
        ("from .neighbour_of_mine import VALUE\n", "import its neighbours by their bare names, as in `import neigh"),
    ],
    ids=["bare", "positional", "object", "class", "method", "relative"],
)
def test_a_slip_is_told_in_words_with_the_authors_own_line(folder: Path, source: str, told: str) -> None:
    (folder / "slip.py").write_text(source)
    with pytest.raises(UsageError, match=told) as caught:
        HOST.reward("./slip.py:f")
    assert "grpo_file_" not in str(caught.value)


def test_the_version_may_be_left_out_in_a_file(folder: Path) -> None:
    (folder / "scratch.py").write_text(
        "from grpo import env, reward, rubric, Component\n\n"
        "@reward()\ndef near(completion):\n    return 1.0\n\n"
        "@env()\ndef sums(*, size=3):\n    return size\n\n"
        "both = rubric(name='both', components=[Component(near)])\n"
    )
    (folder / "tidy.toml").write_text('components = [{ reward = "./scratch.py:near" }]\n')
    for bound in (HOST.reward("./scratch.py:near"), HOST.env("./scratch.py:sums"), HOST.reward("./scratch.py:both")):
        assert bound.spec.version == 0
        assert HOST.lock(bound)["version"] == 0
    assert HOST.reward("./tidy.toml").spec.version == 0


def test_a_file_that_changes_within_a_second_runs_as_it_stands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    source = "from grpo import reward\n\n@reward(version=1)\ndef score(completion: str) -> float:\n    return {}.0\n"
    for value in (1, 2, 3):
        (folder / "quick.py").write_text(source.format(value))
        bound = Host([]).reward("./quick.py:score")
        assert bound.spec("") == value
        with Scorer([bound]) as scorer:  # in a process of its own
            assert scorer.score([Completion("")])["score"][0].score == value


def test_what_a_file_imports_is_to_be_used_and_does_not_hide_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.py").write_text("def imported(completions, **kwargs):\n    return [0.0] * len(completions)\n")
    own = "def own(completions, **kwargs):\n    return [1.0] * len(completions)\n"
    (tmp_path / "mine.py").write_text(f"import json\nfrom theirs import imported\n{own}")
    (tmp_path / "only.py").write_text("from theirs import imported\n")
    assert HOST.reward("./mine.py").spec.name == "own"
    assert HOST.reward("./mine.py:imported").spec.name == "imported"
    assert HOST.reward("./only.py").spec.name == "imported"
    theirs = "def exact(completion, answer, state=None):\n    return float(completion[-1]['content'] == answer)\n"
    (tmp_path / "verifiers_style.py").write_text(theirs)
    with Scorer([HOST.reward("./verifiers_style.py:exact")]) as scorer:
        assert scorer.score([Completion("72", row={"answer": "72"})])["exact"][0].score == 1.0
    with pytest.raises(UsageError, match=r"expected a function, or what @reward makes of one"):
        HOST.reward("./mine.py:json")
    with pytest.raises(PluginNotFound, match=r"Is it the one in mine\.py\? Write \./mine\.py:mine\."):
        HOST.reward("mine")
    with pytest.raises(PluginNotFound, match=r"Is it the one in mine\.py\? Write \./mine\.py:own\."):
        find_plugin(HOST, "mine:own")
    with pytest.raises(PluginNotFound, match=r"Is it the one in mine\.py\? Write \./mine\.py:own\."):
        HOST.reward("mine.own")
    (tmp_path / "ideas").mkdir()
    (tmp_path / "ideas" / "first.py").write_text("from theirs import imported\n")
    for name in ("ideas.first:imported", "first:imported"):
        monkeypatch.chdir(tmp_path if "." in name else tmp_path / "ideas")
        with pytest.raises(PluginNotFound, match=r"Write \./(ideas/)?first\.py:imported\."):
            HOST.reward(name)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "from common_of_mine.text import has",
            "'common_of_mine' is in {folder}, and only {folder}/ideas is searched. ",
        ),
        ("import nowhere_to_be_found", "Install 'nowhere_to_be_found', or the package that has it"),
        ("import sys; sys.exit(2)", "below `if __name__ == '__main__':`"),
        ("rewards = [len, print]", "give its functions one by one"),
    ],
)
def test_a_file_that_cannot_be_used_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, words: str
) -> None:
    for folder in ("ideas", "common_of_mine"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "ideas")
    (tmp_path / "ideas" / "first.py").write_text(f"{source}\n")
    with pytest.raises(UsageError) as caught:
        HOST.reward("./first.py:rewards")
    assert words.format(folder=tmp_path) in str(caught.value)
