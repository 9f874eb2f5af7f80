"""Functions written for TRL: called as TRL calls them, and refused in words when they cannot be."""

from __future__ import annotations

import asyncio
import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo import Completion, from_trl
from grpo.plugins._host.source_file import source_sha256
from grpo.plugins.errors import SpecError, UsageError
from grpo.plugins.host import Host
from grpo.plugins.types import Message

ASKED = (Message(role="system", content="Be brief."), Message(role="user", content="2 + 2?"))


def completion(text: str, **row: Any) -> Completion:
    return Completion(text, prompt=ASKED, row=row, token_ids=tuple(range(len(text))))


def test_it_is_called_with_what_trl_passes() -> None:
    got: dict[str, Any] = {}

    def function(prompts, completions, completion_ids, answer, **kwargs):  # type: ignore[no-untyped-def]
        got.update(kwargs, prompts=prompts, completions=completions, completion_ids=completion_ids, answer=answer)
        kwargs["log_extra"]("column", answer)
        kwargs["log_metric"]("metric", 1.0)
        return [1.0, None]

    spec = from_trl(function, version=3, form="messages")
    assert spec([completion("4", answer="4", level=1), completion("22", answer="22", level=2)]) == [1.0, None]
    assert got["prompts"] == [[dict(message) for message in ASKED]] * 2
    assert got["completions"] == [[{"role": "assistant", "content": text}] for text in ("4", "22")]
    assert got["completion_ids"] == [[0], [0, 1]]
    assert (got["answer"], got["level"]) == (["4", "22"], [1, 2])
    assert sorted(got) == [
        *("answer", "completion_ids", "completions", "level", "log_extra", "log_metric", "prompts"),
    ]
    assert (spec.name, spec.version, spec.batch, spec.whole) == ("function", 3, True, True)
    assert [(column.name, column.required) for column in spec.columns] == [("answer", True)]


def test_a_function_gets_only_what_it_takes() -> None:
    def function(completions, level=None):  # type: ignore[no-untyped-def]
        return [float(level is None) for _ in completions]

    spec = from_trl(function, version=1)
    assert spec([completion("4", answer="4")]) == [1.0]
    assert spec([completion("4", level=None)]) == [0.0]
    assert [(column.name, column.required) for column in spec.columns] == [("level", False)]


def test_a_column_that_some_rows_lack_is_none_there() -> None:
    def function(completions, **kwargs):  # type: ignore[no-untyped-def]
        return [float(level or 0) for level in kwargs["level"]]

    assert from_trl(function, version=1)([completion("a"), completion("b", level=2)]) == [0.0, 2.0]


def test_all_turns_are_in_the_messages() -> None:
    turns = (Message(role="assistant", content="?"), Message(role="user", content="yes"))
    many = Completion("4", messages=(*turns, Message(role="assistant", content="4")), turns=2)

    def function(completions, **kwargs):  # type: ignore[no-untyped-def]
        return [float(len(messages)) for messages in completions]

    assert from_trl(function, version=1, form="messages")([many]) == [3.0]


def test_strings_are_given_where_strings_are_annotated_or_asked_for() -> None:
    def annotated(prompts: list[str], completions: list[str], **kwargs: Any) -> list[float]:
        return [
            float(prompt == "Be brief.\n\n2 + 2?") + len(text)
            for prompt, text in zip(prompts, completions, strict=True)
        ]

    def bare(completions, **kwargs):  # type: ignore[no-untyped-def]
        return [float(isinstance(text, str)) for text in completions]

    def spelt(completions: list[list[dict[str, str]]], **kwargs: Any) -> list[float]:
        return [float(len(messages[0]["content"])) for messages in completions]

    assert from_trl(annotated, version=1)([completion("four")]) == [5.0]
    assert from_trl(bare, version=1)([completion("four")]) == [1.0]
    assert from_trl(bare, version=1)([completion("four")], form="messages") == [0.0]
    assert from_trl(bare, version=1, form="messages")([completion("four")]) == [0.0]
    assert from_trl(spelt, version=1)([completion("four")]) == [4.0]


def test_messages_are_given_where_the_code_reads_their_keys() -> None:
    def right(completions, answer, **kwargs):  # type: ignore[no-untyped-def]
        return [gold in text for text, gold in zip(completions, answer, strict=True)]

    def direct(completions, answer, **kwargs):  # type: ignore[no-untyped-def]
        return [gold in said[0]["content"] for said, gold in zip(completions, answer, strict=True)]

    def by_a_part(completions, answer, **kwargs):  # type: ignore[no-untyped-def]
        return [gold in last_said(said) for said, gold in zip(completions, answer, strict=True)]

    class Judge:
        def __call__(self, completions: list[Any], answer: list[str], **kwargs: Any) -> list[bool]:
            return [gold in self.text(said) for said, gold in zip(completions, answer, strict=True)]

        def text(self, said: Any) -> Any:
            return said[-1]["content"]

    both = [completion("It is 4", answer="4"), completion("no", answer="4")]
    for function, form in ((right, "text"), (direct, "messages"), (by_a_part, "messages"), (Judge(), "messages")):
        spec = from_trl(function)
        assert (spec(both), spec.options[0].default) == ([1.0, 0.0], form)


def last_said(messages: list[dict[str, str]]) -> str:
    return messages[-1]["content"]


def test_where_no_tokens_are_known_a_function_of_tokens_abstains() -> None:
    def function(completion_ids, **kwargs):  # type: ignore[no-untyped-def]
        return [float(len(ids)) for ids in completion_ids]

    spec = from_trl(function, version=1)
    assert spec([completion("abc"), completion("")]) == [3.0, 0.0]
    assert spec([completion("")]) == [0.0]
    unscored = spec([Completion("from a file"), Completion("and another")])
    assert [each.score for each in unscored] == [None, None]
    assert {each.reason for each in unscored} == {
        "it reads completion_ids, and the tokens of these completions are unknown"
    }


def test_async_functions_stay_async() -> None:
    async def function(completions, **kwargs):  # type: ignore[no-untyped-def]
        await asyncio.sleep(0)
        return [0.5 for _ in completions]

    assert asyncio.run(from_trl(function, version=1)([completion("a"), completion("b")])) == [0.5, 0.5]


def test_objects_that_can_be_called_keep_their_own_names() -> None:
    class Punishment:
        __name__ = "punishment"

        def __call__(self, completions: list[str], **kwargs: Any) -> list[float]:
            """Punishes."""
            return [-1.0 for _ in completions]

    spec = from_trl(Punishment(), version=1)
    assert (spec.name, spec([completion("a")])) == ("punishment", [-1.0])


def test_partials_are_what_they_are_made_of() -> None:
    async def at_least(completions: list[str], least: int, **kwargs: Any) -> list[float]:
        """Long enough."""
        return [float(len(text) >= least) for text in completions]

    spec = from_trl(functools.partial(at_least, least=2), version=1)
    assert (spec.name, spec.doc) == ("at_least", "Long enough.")
    assert asyncio.run(spec([completion("a"), completion("ab")])) == [0.0, 1.0]


def test_values_are_read_as_trl_reads_them() -> None:
    numpy = pytest.importorskip("numpy")

    def returning(values: Any) -> Any:
        return from_trl(lambda completions, **kwargs: values, version=1, name="r")([completion("a"), completion("b")])

    assert returning([True, False]) == [1.0, 0.0]
    assert returning((1, None)) == [1, None]
    assert returning(numpy.array([1.0, 0.5])) == [1.0, 0.5]
    assert returning([numpy.float32(0.5), numpy.array(1.0)]) == [0.5, 1.0]
    with pytest.raises(ValueError, match="1 values for 2 completions"):
        returning([1.0])
    with pytest.raises(ValueError, match="returned a float"):
        returning(1.0)
    with pytest.raises(ValueError, match="returned None, as a function without a `return` does"):
        returning(None)


def test_messages_and_rows_are_copies_that_a_function_may_change() -> None:
    def function(prompts, completions, **kwargs):  # type: ignore[no-untyped-def]
        prompts[0][0]["content"] = completions[0][0]["content"] = "changed"
        kwargs["answer"].clear()
        return [0.0]

    one = completion("4", answer="4")
    from_trl(function, version=1)([one])
    assert (one.prompt[0]["content"], one.text, one.row) == ("Be brief.", "4", {"answer": "4"})


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("lambda completions, trainer_state: []", "only TRL's trainer has"),
        ("lambda environments, **kwargs: []", "only TRL's trainer has"),
        ("lambda completions, /: []", "cannot be given by name"),
        ("lambda completion, answer: 1.0", "by the decorator @reward"),
        ("5", "from_trl takes a function"),
    ],
)
def test_what_trl_could_not_call_is_refused_in_words(source: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        from_trl(eval(source), version=1, name="mine")


@pytest.mark.parametrize("wrong", [{"version": -1}, {"name": "a b"}, {"timeout": 0}, {"range": (1.0, 0.0)}])
def test_wrong_metadata_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        from_trl(lambda completions: [], **{"version": 1, "name": "mine", **wrong})


SOURCE = """
from functools import partial

def brief(completions, limit, **kwargs):
    return [float(len(c[0]["content"]) <= most) for c, most in zip(completions, limit)]

async def kind(completions: list[str], **kwargs):
    return [float("please" in text) for text in completions]

def stateful(completions, trainer_state, **kwargs):
    return []

def plain(completion):
    return 1.0

class Longest:
    def __call__(self, completion_ids, **kwargs):
        return [-float(len(ids)) for ids in completion_ids]

longest = Longest()
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "trl_rewards.py"
    path.write_text(SOURCE)
    return path


def test_a_function_of_a_file_is_wrapped_as_it_is(file: Path) -> None:
    bound = Host([]).reward("./trl_rewards.py:brief:as=short,weight=2")
    assert (bound.name, bound.spec.version, bound.spec.isolation) == ("short", 0, "process")
    assert bound.call_together([completion("abc", limit=3), completion("abcd", limit=3)]) == [1.0, 0.0]
    assert Host([]).reward("./trl_rewards.py:brief:form=messages").options == {"form": "messages"}
    assert Host([]).reward("./trl_rewards.py:longest").call_together([completion("abc")]) == [-3.0]
    assert source_sha256(bound.spec.function) == source_sha256(bound.spec.function.func)  # type: ignore[attr-defined]
    assert source_sha256(bound.spec.function) is not None


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("stateful", "only TRL's trainer has"),
        ("breif", "Did you mean 'brief'"),
        ("Longest", "expected a function, or what @reward makes of one"),
    ],
)
def test_other_functions_of_a_file_are_refused_in_words(file: Path, function: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Host([]).reward(f"./trl_rewards.py:{function}")


@pytest.mark.core
def test_the_command_line_scores_with_them(file: Path) -> None:
    rows = [{"completion": "abc please", "limit": 3}, {"completion": "abc", "limit": 3}, {"completion": "abc"}]
    arguments = [sys.executable, "-m", "grpo", "score"]
    for name in ("brief", "kind", "longest"):
        arguments += ["--reward", f"./trl_rewards.py:{name}"]
    data = "".join(json.dumps(row) + "\n" for row in rows)
    done = subprocess.run(arguments, input=data, capture_output=True, text=True, cwd=file.parent, check=True)
    scored = [json.loads(line)["scores"] for line in done.stdout.splitlines()]
    assert [row["brief"]["score"] for row in scored] == [0.0, 1.0, None]
    assert "'limit'" in scored[2]["brief"]["reason"]
    assert [row["kind"]["score"] for row in scored] == [1.0, 0.0, 0.0]
    assert [row["longest"]["outcome"] for row in scored] == ["abstain"] * 3
