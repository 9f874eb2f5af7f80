"""Objects as plugins: what becomes a spec, how a host finds it, and a source that changed."""

from __future__ import annotations

import inspect
import itertools
import linecache
import types
from collections.abc import Callable
from typing import Any

import gymnasium
import pytest

from grpo.plugins._host.python_objects import spec_of, written_sha256
from grpo.plugins._host.source_file import source_sha256
from grpo.plugins.decorators import reward
from grpo.plugins.errors import PluginNotFound, UsageError
from grpo.plugins.host import Host
from grpo.plugins.specs import RewardSpec
from grpo.plugins.types import Verdict

_numbers = itertools.count()


def near(completion: str, answer: str, *, scale: float = 1.0) -> float:
    """How near it is."""
    return scale if completion == answer else 0.0


def cell(source: str, name: str, module: str = "__main__") -> Any:
    """Defines something as a notebook's cell does: its source is known, and it is in no file."""
    place = f"<cell {next(_numbers)}>"
    linecache.cache[place] = (len(source), None, source.splitlines(keepends=True), place)
    values = vars(types.ModuleType(module))
    exec(compile(source, place, "exec"), values)
    return values[name]


def test_a_plain_function_becomes_a_reward_or_a_verifier_of_its_name() -> None:
    spec = spec_of("reward", near)
    assert (spec.name, spec.doc, spec.isolation) == ("near", "How near it is.", "process")
    assert [column.name for column in spec.columns] == ["answer"]
    assert [option.name for option in spec.options] == ["scale"]
    assert spec_of("verifier", lambda completion: Verdict(True)).name == "lambda"
    assert spec_of("reward", lambda prompts, completions: [1.0 for _ in completions]).batch
    made = reward(version=3)(near)
    assert spec_of("reward", made) is made


def test_a_class_becomes_an_environment_that_pays_itself() -> None:
    class Dice(gymnasium.Env[str, str]):
        """Rolls."""

        max_turns = 3

        def __init__(self, *, sides: int = 6) -> None:
            self.action_space = self.observation_space = gymnasium.spaces.Text(sides)

    spec = spec_of("env", Dice)
    assert (spec.name, spec.doc, spec.max_turns, spec.scores_itself) == ("Dice", "Rolls.", 3, True)
    assert (spec.rewards, spec.verifier) == (("environment",), "environment")
    assert isinstance(spec.factory(sides=2), Dice)
    assert [option.name for option in spec.options] == ["sides"]


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("reward", 3, "expected a function, or what @reward makes of one"),
        ("reward", lambda text: 0.0, "must be named 'completion'"),
        (
            "reward",
            spec_of("verifier", near),
            "expected a function, or what @reward makes of one, got the verifier 'near'",
        ),
        ("env", dict, "the class 'dict' is not an environment"),
        ("env", near, "expected a class of gymnasium.Env"),
    ],
)
def test_what_cannot_be_a_plugin_is_told_why(kind: Any, value: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        spec_of(kind, value)


def test_a_host_finds_what_it_was_given_and_nothing_else_by_that_name() -> None:
    host = Host.discover()
    mine = RewardSpec("length", 1, lambda completion: 1.0)
    assert host.give("reward", mine) == host.give("reward", mine) == "__main__/length"
    assert host.reward("__main__/length:weight=2").spec is mine
    assert host.reward("length").distribution == "grpo-kit"
    assert host.reward("length", home="__main__").spec is mine, "the default of an environment that was given too"
    assert host.lock(host.reward("__main__/length"))["distribution"] == "__main__"
    installed = host.reward("proximity").spec
    assert host.give("reward", installed) == "grpo-kit/proximity"
    with pytest.raises(UsageError, match="two rewards named 'length' were given"):
        host.give("reward", RewardSpec("length", 1, near))
    with pytest.raises(PluginNotFound, match=r"Give it again from there, as in grpo.train\(resume=RUN, rewards=near\)"):
        host.reward("__main__/near")
    with pytest.raises(PluginNotFound, match="defined in a script or a notebook"):
        host.env("__main__/length")


USES = """import re
LIMIT = 3
WORDS = ["four", {"five": {5.0}}]
DIGITS = re.compile("[0-9]+")
def part(text):
    return len(text)
def near(completion):
    return float(part(completion) < LIMIT) + sum(bool(DIGITS.match(word)) for word in completion if word in WORDS)
"""


@pytest.mark.parametrize(
    "after",
    [
        USES.replace("float(", "2 * float("),
        USES.replace("len(text)", "len(text.strip())"),
        USES.replace("LIMIT = 3", "LIMIT = 4"),
        USES.replace("5.0", "6.0"),
        USES.replace("[0-9]+", "[0-9]"),
    ],
    ids=["itself", "a function that it calls", "a value that it reads", "a value within one", "a pattern"],
)
def test_a_change_of_a_cell_is_seen(after: str) -> None:
    before = cell(USES, "near")
    assert source_sha256(before) == written_sha256(before) == written_sha256(cell(f"UNUSED = 1\n{USES}", "near"))
    assert written_sha256(before) is not None
    assert written_sha256(before) != written_sha256(cell(after, "near"))


CLASS = """class Dice:
    sides = 6
    def step(self, action):
        return self.roll()
    def roll(self):
        return 4
"""


@pytest.mark.parametrize("change", [("return 4", "return 5"), ("sides = 6", "sides = 7")])
def test_a_change_of_a_class_is_seen(change: tuple[str, str]) -> None:
    assert written_sha256(cell(CLASS, "Dice")) == written_sha256(cell(CLASS, "Dice"))
    assert written_sha256(cell(CLASS, "Dice")) != written_sha256(cell(CLASS.replace(*change), "Dice"))


OBJECT = """class Near:
    def __init__(self, weight):
        self.weight = weight
    def __call__(self, completion):
        return self.weight
near = Near(2)
"""


def test_a_change_of_what_an_object_holds_is_seen() -> None:
    before = cell(OBJECT, "near")
    assert source_sha256(before) == source_sha256(cell(OBJECT, "near"))
    assert source_sha256(before) != source_sha256(cell(OBJECT.replace("Near(2)", "Near(3)"), "near"))
    assert source_sha256(before) != source_sha256(cell(OBJECT.replace("return self", "return -self"), "near"))


def test_a_source_that_is_not_at_hand_is_no_hash() -> None:
    values: dict[str, Callable[..., float]] = {"__name__": "__main__"}  # type: ignore[dict-item]
    exec(compile("def near(completion):\n    return 1.0\n", "<nowhere>", "exec"), values)
    with pytest.raises(OSError, match="source"):
        inspect.getsource(values["near"])
    assert written_sha256(values["near"]) is None
