"""A short name works while it is unique; everything else is refused with what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from grpo.plugins._host.entry_points import Entry
from grpo.plugins.errors import AmbiguousName, PluginNotFound, UsageError
from grpo.plugins.host import Host

SOURCE = """
@reward(version={version})
def near(completion: str) -> float:
    "{distribution}"
    return 1.0

@reward(version=1)
def {own}(completion: str) -> float:
    return 1.0

@verifier(version=1)
def judge_{own}(completion: str) -> Verdict:
    return Verdict(True)

@hookimpl
def grpo_rewards():
    return [near, {own}]

@hookimpl
def grpo_verifiers():
    return [judge_{own}]
"""


@pytest.fixture
def host(make_entry: Callable[..., Entry]) -> Host:
    """Two distributions that both offer the reward `near`, and one that is broken."""
    return Host(
        [
            make_entry(SOURCE.format(version=1, distribution="a-dist", own="alpha"), distribution="a-dist"),
            make_entry(SOURCE.format(version=2, distribution="B_Dist", own="beta"), distribution="B_Dist"),
            make_entry("import no_such_module_anywhere", distribution="broken-dist"),
        ]
    )


def test_a_unique_short_name_is_found(host: Host) -> None:
    assert host.find("reward", "beta").distribution == "B_Dist"
    assert host.find("reward", "beta@1").spec.version == 1


def test_a_clashing_short_name_says_how_to_write_it(host: Host) -> None:
    with pytest.raises(AmbiguousName) as caught:
        host.find("reward", "near")
    assert "'a-dist' and 'B_Dist'" in str(caught.value)
    assert "Write a-dist/near or B_Dist/near." in str(caught.value)


def test_both_sides_of_a_clash_stay_usable(host: Host) -> None:
    assert host.find("reward", "a-dist/near").spec.doc == "a-dist"
    assert host.find("reward", "b-dist/near@2").spec.doc == "B_Dist"


def test_a_clash_is_a_line_for_both_sides(host: Host) -> None:
    lines = {problem.distribution: problem.line for problem in host.problems if problem.state == "clash"}
    assert set(lines) == {"a-dist", "B_Dist"}
    assert lines["a-dist"] == "reward 'near' is offered by 'B_Dist' too; write a-dist/near"


def test_the_home_distribution_settles_a_clash_and_nothing_else(host: Host) -> None:
    assert host.find("reward", "near", home="b.dist").distribution == "B_Dist"
    assert host.find("reward", "alpha", home="b.dist").distribution == "a-dist"
    assert host.find("reward", "a-dist/near", home="b.dist").distribution == "a-dist"
    with pytest.raises(AmbiguousName):
        host.find("reward", "near", home="third-dist")


def test_a_resumed_run_means_by_a_name_what_it_meant_at_its_start(host: Host) -> None:
    host.prefer([{"kind": "reward", "plugin": "near", "distribution": "B_Dist"}])
    assert host.reward("near").distribution == "B_Dist"
    assert host.reward("a-dist/near").distribution == "a-dist"
    with pytest.raises(PluginNotFound):
        host.find("verifier", "near")
    host.prefer([{"kind": "reward", "plugin": "near", "distribution": "uninstalled"}])
    with pytest.raises(AmbiguousName):
        host.reward("near")


def test_a_plugin_whose_package_does_not_load_says_why_and_what_to_install(make_entry: Callable[..., Entry]) -> None:
    entry = make_entry("import no_such_module_anywhere", distribution="broken-dist")
    host = Host([replace(entry, name="near")])
    with pytest.raises(PluginNotFound) as caught:
        host.reward("near")
    assert "broken-dist did not load: ModuleNotFoundError: No module named 'no_such_module_anywhere'" in str(
        caught.value
    )
    assert "Install 'no_such_module_anywhere', or the package that has it" in str(caught.value)


@pytest.fixture
def with_ours(make_entry: Callable[..., Entry]) -> Host:
    """The built-in plugins beside two distributions that offer the reward `near` of theirs."""
    names = [("z-dist", "zeta"), ("Grpo_Kit", "ours"), ("a-dist", "alpha")]
    return Host(make_entry(SOURCE.format(version=1, distribution=name, own=own), name) for name, own in names)


def test_a_built_in_name_wins_and_the_others_can_be_named(with_ours: Host, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        assert with_ours.reward("near").distribution == "Grpo_Kit"
        assert with_ours.find("reward", "near@1", home="third-dist").distribution == "Grpo_Kit"
    assert [record.getMessage() for record in caplog.records] == [
        "reward 'near' is the built-in one. 'z-dist' and 'a-dist' have one of that name too: write z-dist/near or "
        "a-dist/near to use that."
    ]
    caplog.clear()
    assert with_ours.reward("a-dist/near").distribution == "a-dist"
    assert with_ours.find("reward", "near", home="z-dist").distribution == "z-dist"
    assert with_ours.find("reward", "grpo-kit/near").distribution == "Grpo_Kit"
    assert caplog.records == []
    lines = {problem.distribution: problem.line for problem in with_ours.problems}
    assert lines["a-dist"].endswith("write a-dist/near, for 'near' alone means the built-in one")
    assert "'near' alone means this one" in lines["Grpo_Kit"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gsm8k,length", "One SPEC names one reward: repeat the option for each, or give a list."),
        ("zzz", "no reward 'zzz'. One in a file is ./FILE.py:zzz. Plugins of 'broken-dist' did not load"),
        ("betta", "Did you mean 'beta'?"),
        ("Beta", "Did you mean 'beta'?"),
        ("judge_beta", "There is a verifier of that name."),
        ("B_Dst/near", "Did you mean 'B_Dist'?"),
        ("b-dist/alpha", "It is in 'a-dist'."),
        ("broken-dist/x", "broken-dist did not load: ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        ("beta@3", "version 3: B_Dist 1.0 has version 1"),
        ("quite another name", "does not name a plugin"),
    ],
)
def test_a_wrong_name_says_what_why_and_what_next(host: Host, name: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        host.find("reward", name)
    assert words in str(caught.value)


def test_not_found_points_to_the_list(host: Host) -> None:
    with pytest.raises(PluginNotFound, match=r"see why with: grpo plugins$"):
        host.find("env", "gsm8k")
