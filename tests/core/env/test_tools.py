"""The tools of an environment: what is described to the policy, and what it is told when it calls one."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import pytest

from grpo.core.env.tools import LONGEST_ERROR, ToolCall, answer, functions_of, schemas_of
from grpo.plugins.errors import PluginError, SandboxUnavailable


def add(a: int, b: int = 2) -> int:
    """Adds two numbers.

    Args:
        a: one of them.
        b: the other.
    """
    return a + b


async def later(text: str) -> str:
    """Repeats a text.

    Args:
        text: what to repeat.
    """
    return text


def listed() -> dict[str, Any]:
    """Lists things."""
    return {"things": ["é", 1], "of": object}


def broken(kind: str) -> str:
    """Fails.

    Args:
        kind: how.
    """
    raise {"machine": SandboxUnavailable, "program": ValueError}[kind]("lost " + "x" * 2000)


def odd() -> str:
    """Returns what no tokenizer reads."""
    return "a\ud800b"


class Tooled(gymnasium.Env[str, str]):
    tools = (add, later, listed, broken, odd)


def told(name: str, **arguments: Any) -> str:
    return answer(functions_of(Tooled()), ToolCall(name, arguments))


def test_tools_are_described_as_chat_templates_take_them() -> None:
    class Bound(gymnasium.Env[str, str]):
        @property
        def tools(self) -> list[Any]:
            return [self.look]

        def look(self, where: str) -> str:
            """Looks.

            Args:
                where: the place.
            """
            return where

    (schema,) = schemas_of(Bound(), "env")
    assert schema["function"]["name"] == "look"
    assert list(schema["function"]["parameters"]["properties"]) == ["where"], "a method's self is no parameter"
    assert schema["function"]["parameters"]["properties"]["where"]["description"] == "the place."
    assert [one["function"]["name"] for one in schemas_of(Tooled(), "env")] == [t.__name__ for t in Tooled.tools]
    assert schemas_of(gymnasium.Env(), "env") == ()


def undescribed(a: int) -> int:
    return a


def unannotated(a):  # type: ignore[no-untyped-def]
    """Does things.

    Args:
        a: a thing.
    """


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        ([undescribed], "'undescribed' cannot be described .* Annotate every parameter"),
        ([unannotated], "'unannotated' cannot be described"),
        ([add, add], "two of its tools are named 'add'"),
        (["add"], "holds 'add', which is not a function"),
    ],
)
def test_tools_that_cannot_be_offered_are_the_authors_to_mend(tools: list[Any], why: str) -> None:
    env = gymnasium.Env[str, str]()
    env.tools = tools  # type: ignore[attr-defined]
    with pytest.raises(PluginError, match=f"env 'mine': .*{why}"):
        schemas_of(env, "mine")


def test_a_result_is_told_as_text() -> None:
    assert told("add", a=3) == "5"
    assert told("later", text="so") == "so"
    assert json.loads(told("listed"))["things"] == ["é", 1]
    assert told("odd") == "a?b"


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("ad", {}, "there is no tool 'ad'; there is: add, later, listed, broken, odd. Did you mean 'add'?"),
        ("add", {}, "missing 1 required positional argument"),
        ("add", {"a": "x"}, "TypeError"),
        ("add", {"a": 1, "self": 2}, "unexpected keyword argument"),
        ("broken", {"kind": "program"}, "ValueError: lost x"),
    ],
)
def test_a_call_that_cannot_be_answered_is_told_as_an_error(name: str, arguments: dict[str, Any], why: str) -> None:
    error = json.loads(told(name, **arguments))["error"]
    assert why in error
    assert len(error) <= LONGEST_ERROR


def test_trouble_of_the_machine_is_no_answer() -> None:
    with pytest.raises(SandboxUnavailable):
        told("broken", kind="machine")
