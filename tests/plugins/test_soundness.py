"""Specs that were built by hand are held to the same rules as those of the decorators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo import Case, EnvSpec, RewardSpec, SandboxSpec, VerifierSpec
from grpo.plugins._spec.soundness import spec_fault
from grpo.plugins.specs import Column, Option


def score(completion: str) -> float:
    return 0.0


FACTORY: Any = dict  # what it makes is asked for nothing here
SOUND = RewardSpec("near", 1, score, options=(Option("a", int, 1),), columns=(Column("b"),), cases=(Case("x"),))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "a/b"}, "cannot be a plugin name"),
        ({"name": ""}, "cannot be a plugin name"),
        ({"name": None}, "cannot be a plugin name"),
        ({"name": "a b"}, "cannot be a plugin name"),
        ({"name": "gym"}, "another meaning"),
        ({"name": "x.py"}, "another meaning"),
        ({"version": -1}, "version -1"),
        ({"version": True}, "version True"),
        ({"version": "1"}, "version '1'"),
        ({"function": "score"}, "not callable"),
        ({"timeout": 0}, "timeout 0"),
        ({"timeout": float("nan")}, "timeout nan"),
        ({"timeout": float("inf")}, "timeout inf"),
        ({"doc": None}, "doc must be text"),
        ({"options": ["a"]}, "options must be a tuple of Option"),
        ({"options": (Option("weight", float, 1.0),)}, "'weight' is reserved"),
        ({"columns": ("answer",)}, "columns must be a tuple of Column"),
        ({"cases": [Case("x")]}, "cases must be a tuple of Case"),
        ({"isolation": "docker"}, "isolation 'docker'"),
        ({"range": (1.0, 0.0)}, "range"),
        ({"range": 1.0}, "range"),
        ({"range": (None, 1.0)}, "range (None, 1.0)"),
        ({"range": ("0", "1")}, "range ('0', '1')"),
        ({"scope": None}, "scope None"),
        ({"version": 10**5000}, "count releases"),
        ({"timeout": 10**400}, "finite number of seconds"),
        ({"timeout": True}, "timeout True"),
        ({"name": "near\x1b[2J"}, "'near\\x1b[2J' cannot be a plugin name: it has characters"),
        ({"name": "near\u202egnp"}, "a terminal obeys"),
        ({"name": "near\ud800"}, "a terminal obeys"),
    ],
)
def test_a_faulty_field_is_named(change: dict[str, Any], words: str) -> None:
    assert words in spec_fault("reward", replace(SOUND, **change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rewards": "proximity"}, "rewards 'proximity' must be a tuple of SPECs"),
        ({"rewards": (SOUND,)}, "must be a tuple of SPECs"),
        ({"max_turns": "3"}, "max_turns '3'"),
        ({"max_turns": 0}, "max_turns 0"),
        ({"dataset": [{"question": "1 + 1?"}]}, "dataset must be a function or None, got list"),
        ({"ordered": True}, "ordered must be a function or None"),
    ],
)
def test_a_faulty_field_of_an_environment_is_named(change: dict[str, Any], words: str) -> None:
    assert words in spec_fault("env", replace(EnvSpec("e", 1, FACTORY), **change))


def test_sound_specs_have_no_fault() -> None:
    assert spec_fault("reward", SOUND) == ""
    assert spec_fault("verifier", VerifierSpec("v", 1, score)) == ""
    assert spec_fault("env", EnvSpec("e", 1, FACTORY)) == ""
    assert spec_fault("sandbox", SandboxSpec("s", 1, FACTORY)) == ""


def test_a_family_of_environments_has_the_name_of_a_prefix_and_nothing_else_has() -> None:
    family = EnvSpec("textarena", 1, FACTORY, resolve=lambda member: EnvSpec(member, 1, FACTORY))
    assert spec_fault("env", family) == ""
    assert "another meaning" in spec_fault("env", replace(family, resolve=None))
    assert "cannot be a family" in spec_fault("env", replace(family, name="arena"))


@pytest.mark.parametrize("kind", ["reward", "verifier", "env", "sandbox"])
def test_another_kind_of_spec_is_no_spec_of_this_kind(kind: Any) -> None:
    others = [
        SOUND,
        VerifierSpec("v", 1, score),
        EnvSpec("e", 1, FACTORY),
        SandboxSpec("s", 1, FACTORY),
        object(),
        None,
    ]
    assert [spec_fault(kind, other) == "" for other in others].count(True) == 1
