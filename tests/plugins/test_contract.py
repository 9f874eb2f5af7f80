"""A package states which contract it was written for; a host with another one says so and does not load it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

from grpo.plugins._host.entry_points import Entry
from grpo.plugins._host.loading import load_entry
from grpo.plugins.contract import CONTRACT, contract_fault
from grpo.plugins.errors import PluginNotFound
from grpo.plugins.host import Host, Problem

HOOK = """
@reward(version=1)
def near(completion: str) -> float:
    return 1.0

@hookimpl
def grpo_rewards():
    return [near]
"""
HookSource = Callable[..., Entry]


def only_problem(host: Host) -> Problem:
    [problem] = host.problems
    return problem


@pytest.mark.parametrize("statement", ["", f"grpo_contract = {CONTRACT}"])
def test_a_package_of_this_contract_is_loaded_and_without_a_statement_it_is_of_the_first(
    make_entry: HookSource, statement: str
) -> None:
    host = Host([make_entry(statement + HOOK)])
    assert host.problems == ()
    assert host.reward("near").spec.name == "near"


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        (CONTRACT + 1, f"was written for contract {CONTRACT + 1}, and this is grpo-kit "),
        (CONTRACT + 1, f" with contract {CONTRACT}, which means other names or hooks; install a newer grpo-kit, or an"),
        (0, "grpo_contract is 0; write the number"),
        ("1.0", "grpo_contract is '1.0'; write the number"),
        (True, "grpo_contract is True; write the number"),
        (None, "grpo_contract is None; write the number"),
    ],
)
def test_another_contract_says_what_why_and_what_next(make_entry: HookSource, statement: object, words: str) -> None:
    host = Host([make_entry(f"grpo_contract = {statement!r}{HOOK}")])
    problem = only_problem(host)
    assert problem.state == "contract"
    assert words in problem.line
    assert host.registrations() == ()
    with pytest.raises(PluginNotFound, match="Plugins of 'some-dist' did not load; see why with: grpo plugins"):
        host.reward("near")


def test_an_older_contract_asks_for_a_newer_release_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo.plugins.contract.CONTRACT", 3)
    assert "was written for contract 2" in contract_fault(2)
    assert "install a newer release of it" in contract_fault(2)


def test_hooks_of_another_contract_are_not_called(make_entry: HookSource) -> None:
    source = "grpo_contract = 99\n@hookimpl\ndef grpo_rewards():\n    raise RuntimeError('called')\n"
    assert [problem.state for problem in load_entry(make_entry(source)).problems] == ["contract"]


def test_an_import_that_fails_for_another_contract_says_so(make_entry: HookSource) -> None:
    host = Host([make_entry("from grpo import not_there_yet\n\ngrpo_contract = 2\n")])
    problem = only_problem(host)
    assert problem.state == "contract"
    assert "cannot import name 'not_there_yet'" in problem.line
    assert "It was written for contract 2, and this is grpo-kit " in problem.line
    assert "ImportError" in problem.traceback


def test_an_import_that_fails_within_the_contract_asks_for_a_newer_release(make_entry: HookSource) -> None:
    problem = only_problem(Host([make_entry(f"from grpo import not_there_yet\n\ngrpo_contract = {CONTRACT}\n")]))
    assert problem.state == "broken"
    assert f"with contract {CONTRACT}: the name came with a newer release (pip install -U grpo-kit)" in problem.line


def test_an_import_that_has_nothing_to_do_with_grpo_is_just_broken(make_entry: HookSource) -> None:
    problem = only_problem(Host([make_entry("import no_such_module_anywhere\ngrpo_contract = 2\n")]))
    assert problem.state == "broken"
    assert "contract" not in problem.line


@pytest.mark.parametrize("statement", ["1.0", "'1'", "-1", "[1]", "10**30"])
def test_what_is_no_number_of_a_contract_is_none(make_entry: HookSource, statement: str) -> None:
    assert only_problem(Host([make_entry(f"grpo_contract = {statement}{HOOK}")])).state == "contract"


def test_a_package_in_another_encoding_whose_import_fails_is_a_problem_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "# -*- coding: latin-1 -*-\n# \u00e9\nfrom grpo import not_there_yet\ngrpo_contract: int = 2\n"
    (tmp_path / "in_latin_1.py").write_bytes(source.encode("latin-1"))
    monkeypatch.syspath_prepend(tmp_path)
    problem = only_problem(Host([Entry("some-dist", "1.0", "rewards", lambda: importlib.import_module("in_latin_1"))]))
    assert problem.state == "contract"
    assert "It was written for contract 2" in problem.line
