"""Rubrics written in Python and TOML: what follows from the components, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo import Completion, Component, RewardSpec, RubricSpec, reward, rubric
from grpo.plugins._host.entry_points import Entry
from grpo.plugins._host.lock import drift
from grpo.plugins.errors import OptionError, PluginError, PluginNotFound, SpecError, UsageError
from grpo.plugins.host import Host
from grpo.plugins.rubric import parts


@reward(version=1, range=(0.0, 1.0), isolation="inline")
def has(completion: str, *, word: str = "yes") -> float | None:
    return None if not completion else float(word in completion)


@reward(version=1, range=(-1.0, 1.0), isolation="thread", timeout=3.0)
def equals(completion: str, answer: str, hint: str = "") -> float:
    return 1.0 if completion.split()[-1] == answer else -1.0


@reward(version=1, isolation="inline")
def endless(completion: str) -> float:
    return float(len(completion))


SUM = rubric(name="sum", version=3, doc="Both.", components=[Component(has, 0.5, gate=True), Component(equals, 2.0)])


def test_columns_options_range_and_limits_follow_from_the_components() -> None:
    assert isinstance(SUM, RewardSpec)
    assert (SUM.kind, SUM.name, SUM.version, SUM.doc) == ("reward", "sum", 3, "Both.")
    assert [(column.name, column.required) for column in SUM.columns] == [("answer", True), ("hint", False)]
    assert [(option.name, option.default) for option in SUM.options] == [("has.word", "yes")]
    assert SUM.range == (-2.0, 2.5)
    assert (SUM.isolation, SUM.timeout, SUM.whole) == ("thread", 10.0, True)


def test_a_rubric_is_called_like_a_function() -> None:
    assert SUM("yes 4", "4") == 2.5
    assert SUM("yes 5", answer="4") == -1.5
    assert SUM("no 4", answer="4") == -2.0
    assert SUM(Completion("si 4", row={"answer": "4"}), **{"has.word": "si"}) == 2.5
    with pytest.raises(TypeError, match="it takes 2 columns"):
        SUM("yes", "4", "", "more")
    with pytest.raises(IndexError):
        rubric(name="r", version=1, components=[Component(equals)])("", "4")


def test_an_async_component_cannot_be_called_plainly() -> None:
    @reward(version=1)
    async def slow(completion: str) -> float:
        return 1.0

    with pytest.raises(PluginError, match=r"'rubric\.slow' is async"):
        rubric(name="r", version=1, components=[Component(slow)])("text")


def test_rubrics_nest_and_their_options_with_them() -> None:
    inner = rubric(
        name="inner",
        version=1,
        combine="any",
        components=[Component(has, name="yes"), Component(has, name="no", options={"word": "no"})],
    )
    outer = rubric(name="outer", version=1, components=[Component(inner, 2.0, gate=True), Component(equals)])
    assert [(option.name, option.default) for option in outer.options] == [
        ("inner.yes.word", "yes"),
        ("inner.no.word", "no"),
    ]
    assert outer.range == (-1.0, 3.0)
    assert outer("no 4", "4") == 3.0
    assert outer("maybe 4", "4") == -1.0
    assert outer("maybe 4", "4", **{"inner.no.word": "maybe"}) == 3.0


@pytest.mark.parametrize(
    ("components", "combine", "words"),
    [
        ([], "sum", "has no components"),
        ([Component(has), Component(has)], "sum", "two components named 'has'"),
        ([Component(has, name="a"), Component(has, name="a.b")], "sum", "'a' begins that of another"),
        ([Component(has, name="a b")], "sum", "a name has no"),
        ([Component(has, math.nan)], "sum", "weight nan must be a finite number"),
        ([Component(has, passes=math.inf)], "sum", "passes inf must be"),
        ([Component(has, passes=1.5)], "all", "passes 1.5 is never reached, as its scores end at 1"),
        ([Component(has, timeout=0)], "sum", "timeout 0 must be a finite number of seconds above 0"),
        ([Component(has, timeout=-1.0)], "sum", "timeout -1.0 must be"),
        ([Component(has, timeout=math.inf)], "sum", "timeout inf must be"),
        ([Component(has, 0.0), Component(equals, 0.0)], "sum", "every weight is 0"),
        ([Component(has, 2.0)], "all", "weight has no meaning in a rubric that combines by 'all'"),
        ([Component(has, gate=True), Component(equals)], "any", "a gate has no meaning"),
        ([Component(has)], "al", "combine is 'al'"),
        ([Component(has, options={"wrod": "a"})], "sum", "has no option 'wrod'. Did you mean 'word'?"),
        ([Component(endless, gate=True), Component(has)], "sum", "no upper limit, so say from which one it passes"),
        ([Component(endless)], "any", "no upper limit"),
        ([Component(has, gate=True), Component(endless)], "sum", "comes after the gate 'has'"),
    ],
)
def test_components_that_do_not_fit_are_refused(components: list[Component], combine: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        rubric(name="r", version=1, components=components, combine=combine)  # type: ignore[arg-type]
    assert words in str(caught.value)
    assert str(caught.value).startswith("rubric 'r'")


def test_a_gate_with_a_limit_of_its_own_needs_no_upper_one() -> None:
    spec = rubric(name="r", version=1, components=[Component(endless, gate=True, passes=3.0), Component(has)])
    assert spec("yes") == 4.0
    assert spec("no") == 2.0


PLUGIN = """
from grpo import Component, rubric

parts = [Component("near:tolerance=0.2", 2.0), Component("{other}", gate=True)]
both = rubric(name="both", version=1, components=parts)

@hookimpl
def grpo_rewards():
    return [both]
"""


def test_a_plugin_offers_a_rubric_whose_components_the_host_finds(
    make_entry: Callable[..., Entry], near_entry: Entry
) -> None:
    host = Host([make_entry(PLUGIN.format(other="near:as=exact"), distribution="rubrics"), near_entry])
    assert host.problems == ()
    bound = host.reward("both:weight=3,exact.limit=9,timeout=2,as=b")
    assert (bound.weight, bound.name) == (3.0, "b")
    _, near, exact = parts(bound)
    assert (near.name, near.options, near.distribution, near.timeout) == ("b.near", {"tolerance": 0.2}, "near-dist", 2)
    assert (exact.name, exact.options) == ("b.exact", {"limit": 9})
    with pytest.raises(OptionError, match="cannot be 'many'"):
        host.reward("both:exact.limit=many")
    with pytest.raises(UsageError, match=r"two rewards are named 'both\.near'"):
        host.rewards(["both", "near:as=both.near"])


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ("nir", "no reward 'nir'"),
        ("near:weight=2", "the weight of a component stands beside"),
        ("both", "rubric 'both' contains itself"),
    ],
)
def test_a_rubric_that_cannot_be_completed_is_a_problem_and_stops_nothing_else(
    make_entry: Callable[..., Entry], near_entry: Entry, other: str, words: str
) -> None:
    host = Host([make_entry(PLUGIN.format(other=other), distribution="rubrics"), near_entry])
    [problem] = host.problems
    assert (problem.state, problem.distribution) == ("invalid", "rubrics")
    assert words in problem.line
    assert [known.spec.name for known in host.registrations("reward")] == ["near"]


TOML = """
combine = "sum"
doc = "Both."
components = [
  { reward = "near:tolerance=0.2", name = "close", weight = 0.5, gate = true, passes = 0.2 },
  { name = "either", combine = "any", components = [{ reward = "near" }, { reward = "mine.py:mine", passes = 0.5 }] },
]
[[cases]]
completion = "4"
row = { answer = "4" }
expect = 1.5
"""
MINE = """
from grpo import reward

@reward(version=1, range=(0.0, 1.0), isolation="inline")
def mine(completion: str) -> float:
    return 0.5
"""


@pytest.fixture
def tidy(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    path = tmp_path / "tidy.toml"
    path.write_text(TOML)
    return path


def test_a_rubric_comes_from_a_toml_file(tidy: Path, near_entry: Entry) -> None:
    host = Host([near_entry])
    bound = host.reward(f"{tidy}:weight=2,either.near.limit=1")
    assert isinstance(bound.spec, RubricSpec)
    assert (bound.name, bound.spec.version, bound.spec.doc, bound.weight) == ("tidy", 0, "Both.", 2.0)
    names = [part.name for part in parts(bound)]
    assert names == ["tidy", "tidy.close", "tidy.either", "tidy.either.near", "tidy.either.mine"]
    assert bound.call(Completion("4", row={"answer": "4"})) == bound.spec.cases[0].expect
    assert host.find("reward", str(tidy)).spec == bound.spec
    with pytest.raises(PluginNotFound, match="describes a rubric, which is a reward"):
        host.verifier(str(tidy))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("reward = ", "rewrd = ", "unknown key 'rewrd'. Did you mean 'reward'?"),
        ("combine = ", "combin = ", "unknown key 'combin'. Did you mean 'combine'?"),
        ("weight = 0.5", "weigth = 0.5", "component 'close': unknown key 'weigth'. Did you mean 'weight'?"),
        ("weight = 0.5", "weight = true", "weight is True; it must be a number"),
        ("gate = true", "gate = 1", "gate is 1; it must be true or false"),
        ('reward = "near:tolerance=0.2", ', "", "needs either 'reward' (a SPEC) or 'components'"),
        ('"sum"', '"sum', "not valid TOML"),
        ("tolerance=0.2", "tolerance=much", "option 'tolerance' cannot be 'much'"),
        ("near:tolerance=0.2", "far", "rubric 'tidy': no reward 'far'"),
        ("mine.py:mine", "tidy.toml", "contains itself"),
        ("completion", "compulsion", "a case is"),
        ("expect", "expected", "unknown key 'expected'"),
        ('name = "either", ', "", "need a 'name'"),
        ("weight = 0.5", "timeout = 0", "timeout 0 must be a finite number of seconds above 0"),
        ("near:tolerance=0.2", "verifier:math", "a SPEC does not name the kind. Write 'math'"),
        ("mine.py:mine", "./", "is a folder. Name a file in it"),
        ("weight = 0.5", "options = { tolerance = 0.3 }", "'tolerance' stands in the SPEC and under options. Keep one"),
        ("[[cases]]", "[cases]", "it must be a list of tables: write [[cases]]"),
        ("passes = 0.5", "passes = 5", "passes 5 is never reached"),
    ],
)
def test_a_toml_file_that_cannot_be_used_says_why(
    tidy: Path, near_entry: Entry, old: str, new: str, words: str
) -> None:
    tidy.write_text(TOML.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        Host([near_entry]).reward(str(tidy))
    assert words in str(caught.value)


def test_no_file_no_rubric(tmp_path: Path) -> None:
    with pytest.raises(PluginNotFound, match=r"no file .* Write \./rubric\.toml"):
        Host([]).reward(str(tmp_path / "none.toml"))


def test_a_folder_is_no_rubric(tmp_path: Path) -> None:
    (tmp_path / "rubric.toml").mkdir()
    for path in (tmp_path, tmp_path / "rubric.toml"):
        with pytest.raises(UsageError, match=r"is a folder\. Name a file in it"):
            Host([]).reward(str(path))


def test_a_rubric_in_a_file_whose_name_cannot_be_its_own_needs_another(tidy: Path, near_entry: Entry) -> None:
    path = tidy.with_name("my rubric.toml")
    path.write_text(TOML)
    with pytest.raises(UsageError, match="Give it a name = "):
        Host([near_entry]).reward(str(path))
    path.write_text(f'name = "mine"\n{TOML}')
    assert Host([near_entry]).reward(str(path)).name == "mine"


def test_a_file_that_is_not_utf_8_says_so(tidy: Path, near_entry: Entry) -> None:
    tidy.write_bytes(b"doc = '\xff'")
    with pytest.raises(UsageError, match="not text in UTF-8"):
        Host([near_entry]).reward(str(tidy))


def test_the_lock_of_a_rubric_holds_its_components(tidy: Path, near_entry: Entry) -> None:
    host = Host([near_entry])
    before = host.lock(host.reward(str(tidy)))
    assert [part["name"] for part in before["components"]] == ["tidy.close", "tidy.either"]
    assert drift(before, host.lock(host.reward(str(tidy)))) == []
    tidy.write_text(TOML.replace("weight = 0.5", "weight = 0.6").replace('combine = "any"', 'combine = "all"'))
    assert drift(before, host.lock(host.reward(str(tidy)))) == [
        "reward 'tidy.close': weight was 0.5, is now 0.6",
        "reward 'tidy.either': combine was 'any', is now 'all'",
    ]
    (tidy.parent / "mine.py").write_text(MINE.replace("0.5", "0.7"))
    tidy.write_text(TOML.replace('{ reward = "near" }, ', '{ reward = "near", name = "other" }, '))
    assert drift(before, host.lock(host.reward(str(tidy)))) == [
        "reward 'tidy.either': the component 'tidy.either.near' is gone",
        "reward 'tidy.either.mine': its source has changed",
        "reward 'tidy.either': the component 'tidy.either.other' is new",
    ]
