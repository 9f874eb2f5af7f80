"""SPECs are read as the documentation says, and what cannot be read is refused in words."""

from __future__ import annotations

from typing import Any

import pytest

from grpo.plugins._spec.spec_text import SpecText, parse
from grpo.plugins.errors import UsageError


def parsed(text: str) -> dict[str, Any]:
    return {key: value.parsed for key, value in parse(text).options.items()}


@pytest.mark.parametrize(
    ("text", "distribution", "name", "version"),
    [
        ("proximity", "", "proximity", None),
        ("gsm8k.strict_format", "", "gsm8k.strict_format", None),
        ("grpo-kit/proximity", "grpo-kit", "proximity", None),
        ("proximity@3", "", "proximity", 3),
        ("  grpo-kit/proximity@12  ", "grpo-kit", "proximity", 12),
    ],
)
def test_the_head_names_distribution_name_and_version(
    text: str, distribution: str, name: str, version: int | None
) -> None:
    spec = parse(text)
    assert (spec.distribution, spec.name, spec.version) == (distribution, name, version)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("a=1", {"a": 1}),
        ("a=0.05,b=text", {"a": 0.05, "b": "text"}),
        ('a="x,y",b=2', {"a": "x,y", "b": 2}),
        ("a=[1, 2, 3],b=true", {"a": [1, 2, 3], "b": True}),
        ('a={"k": [1, {"m": "n,o"}]},b=null', {"a": {"k": [1, {"m": "n,o"}]}, "b": None}),
        ("a=2 apples,b=-1e3", {"a": "2 apples", "b": -1000.0}),
        ("a=5px", {"a": "5px"}),
        ("a=./x.jsonl", {"a": "./x.jsonl"}),
        ("a=hf://data:8/x=y", {"a": "hf://data:8/x=y"}),
        ("a=", {"a": ""}),
        ("a=,b=1", {"a": "", "b": 1}),
        (" a = 1 , b = two words ", {"a": 1, "b": "two words"}),
        ("a=[a-z]+", {"a": "[a-z]+"}),
        ('a="quoted"tail', {"a": '"quoted"tail'}),
    ],
)
def test_values_are_json_or_bare_text(options: str, expected: dict[str, Any]) -> None:
    assert parsed(f"name:{options}") == expected


def test_reserved_keys_are_not_options() -> None:
    spec = parse("near:tolerance=0.05,weight=2,as=close,timeout=1.5,reads=rollout")
    assert (spec.weight, spec.alias, spec.timeout, spec.reads) == (2.0, "close", 1.5, "rollout")
    assert list(spec.options) == ["tolerance"]


def test_an_alias_that_reads_as_a_number_stays_text() -> None:
    assert parse("near:as=2").alias == "2"


@pytest.mark.parametrize(
    ("text", "path", "function", "options"),
    [
        ("./mine.py:score", "./mine.py", "score", {}),
        ("mine.py:score", "mine.py", "score", {}),
        ("/a/b c/mine.py:score:limit=3", "/a/b c/mine.py", "score", {"limit": 3}),
        ("../x/mine.py:score@2:limit=3", "../x/mine.py", "score", {"limit": 3}),
        ("~/mine.py:score:path=./other.py", "~/mine.py", "score", {"path": "./other.py"}),
    ],
)
def test_a_file_is_named_by_path_and_function(text: str, path: str, function: str, options: dict[str, Any]) -> None:
    spec = parse(text)
    assert (spec.path, spec.name) == (path, function)
    assert {key: value.parsed for key, value in spec.options.items()} == options


def test_a_table_says_the_same_as_text() -> None:
    table = {"name": "d/near@1", "weight": 2, "as": "n", "timeout": 5, "options": {"tolerance": 0.05}}
    spec = parse(table)
    assert (spec.distribution, spec.name, spec.version) == ("d", "near", 1)
    assert (spec.weight, spec.alias, spec.timeout) == (2.0, "n", 5.0)
    assert spec.options["tolerance"].parsed == 0.05


def test_a_table_may_name_a_file() -> None:
    spec = parse({"name": "./mine.py:score", "options": {"limit": 3}})
    assert (spec.path, spec.name) == ("./mine.py", "score")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty SPEC"),
        (":a=1", "does not name a plugin"),
        ("/", "is a folder"),
        ("two words", "does not name a plugin"),
        ("near@two", "whole number"),
        ("near@", "whole number"),
        ("near:", "expected key=value"),
        ("near:a=1,", "expected key=value"),
        ("near:a=1,a=2", "given twice"),
        ("near:weight=heavy", "weight=heavy must be a finite number"),
        ("near:weight=NaN", "must be a finite number"),
        ("near:weight=Infinity", "must be a finite number"),
        ("near:weight=true", "must be a finite number"),
        ("near:timeout=0", "above 0"),
        ("near:reads=all", "reads=all must be one of turn, rollout"),
        ("near:timeout=-1", "above 0"),
        ("near:as=a/b", "without '/'"),
        ('near:as="a b"', "without '/'"),
        ("near:as=a\x1b[2J", "in plain letters"),
        ("near:as=", "without '/'"),
        ("gym:", "names no environment of 'gym'"),
        ("gym:id=CartPole-v1", "names no environment of 'gym'"),
        ("reasoning_gym:a b", "names no environment of 'reasoning_gym'"),
        ("verifiers:", "names no environment of 'verifiers'"),
        ("textarena:x=1", "names no environment of 'textarena'"),
        ("./mine.py:", "Write ./file.py:function"),
        ("./mine.jsonl", "is a data set and no plugin. To train on its rows: --env rows:dataset=./mine.jsonl"),
        ("mine.csv:prompt=a", "To train on its rows: --env rows:dataset=mine.csv"),
        ("./mine:score", "does not name a function of a Python file"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"question": "?"}, "Rows of your own are given as the data set."),
        ({}, "names no plugin"),
        ({"name": 3}, "names no plugin"),
        ({"name": "near", "tolerance": 1}, "options = { tolerance = ... }"),
        ({"name": "near", "wieght": 1}, "Did you mean 'weight'?"),
        ({"name": "near", "options": [1]}, "must be a table"),
        ({"name": "near", "options": {"weight": 2}}, "beside name"),
        ({"name": "near:a=1"}, "under options"),
        ({"name": "near", "weight": "heavy"}, "finite number"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_in_words(table: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(table)
    assert words in str(caught.value)


def test_the_text_is_kept_for_errors() -> None:
    assert isinstance(parse("near:a=1"), SpecText)
    assert parse("near:a=1").written == "near:a=1"


@pytest.mark.parametrize(
    ("text", "member", "options"),
    [
        ("gym:CartPole-v1", "CartPole-v1", {}),
        ("gym:grpo.envs:grpo/countdown-v1", "grpo.envs:grpo/countdown-v1", {}),
        ("gym:FrozenLake-v1:is_slippery=false,as=lake", "FrozenLake-v1", {"is_slippery": False}),
        ("gym:grpo.envs:grpo/gsm8k-v1:rules=a:b", "grpo.envs:grpo/gsm8k-v1", {"rules": "a:b"}),
    ],
)
def test_the_member_of_a_family_stands_between_two_colons(text: str, member: str, options: dict[str, object]) -> None:
    read = parse(text)
    assert (read.name, read.member) == ("gym", member)
    assert {name: value.parsed for name, value in read.options.items()} == options
    assert parse({"name": text.partition(":is")[0].partition(":rules")[0]}).member == member
