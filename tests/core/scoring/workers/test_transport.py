"""How a plugin travels: by its name where a fresh interpreter finds it, else by value; never what only people read."""

from __future__ import annotations

import importlib.util
import math
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo import Case, reward
from grpo.core.scoring.workers.transport import Reference, find_reference, pack_reference, pack_value, unpack
from grpo.plugins._spec.binding import BoundReward
from grpo.plugins.host import Host

SOURCE = """
from grpo import reward

WEIGHTS = {"a": 0.25}

@reward(version=1)
def weighed(completion: str, *, factor: float = 1.0) -> float:
    return WEIGHTS[completion] * factor

def plain(completion):
    return WEIGHTS[completion]
"""


def bound(function: Callable[..., Any]) -> BoundReward:
    return BoundReward(reward(version=1, name="mine", cases=[Case("a", expect=1.0)])(function), "their-dist")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "mine.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def test_an_installed_function_goes_by_its_name_alone() -> None:
    assert find_reference(math.sqrt) == Reference("math", "sqrt", None)
    plugin = Host.discover().reward("gsm8k.correctness")
    packed = pack_reference(plugin)
    assert packed is not None
    assert len(packed) < 2000
    assert unpack(packed).spec.function is plugin.spec.function


def test_a_function_of_a_file_goes_with_the_file_and_keeps_its_options(file: Path) -> None:
    plugin = Host([]).reward(f"{file}:weighed:factor=2")
    reference = find_reference(plugin.spec.function)
    assert reference is not None
    assert reference.file == str(file)
    packed = pack_reference(plugin)
    assert packed is not None
    again = unpack(packed)
    assert (again.name, again.options, again.timeout) == (plugin.name, plugin.options, plugin.timeout)
    assert again.spec.function("a", factor=2.0) == 0.5


def test_what_has_no_place_of_its_own_goes_by_value() -> None:
    threshold = 3

    def closure(completion: str) -> float:
        return float(len(completion) > threshold)

    for function, text, score in ((closure, "four", 1.0), (lambda completion: math.pi, "", math.pi)):
        plugin = bound(function)
        assert find_reference(function) is None
        assert pack_reference(plugin) is None
        assert unpack(pack_value(plugin)).spec.function(text) == score


def test_a_name_that_another_function_took_over_is_no_reference(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    plugin = Host([]).reward(f"{file}:weighed")
    module = sys.modules[plugin.spec.function.__module__]
    monkeypatch.setattr(module, "weighed", module.plain)
    assert find_reference(plugin.spec.function) is None


def test_a_module_that_the_path_finds_elsewhere_goes_with_its_own_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "twice.py").write_text(SOURCE.replace("0.25", "0.75"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    spec = importlib.util.spec_from_file_location("twice", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "twice", module)
    spec.loader.exec_module(module)
    assert find_reference(module.plain) == Reference("twice", "plain", str(file))


def test_a_module_goes_along_by_value_with_the_globals_that_the_function_reads(file: Path) -> None:
    plugin = Host([]).reward(f"{file}:weighed")
    packed = pack_value(plugin)
    del sys.modules[plugin.spec.function.__module__]
    assert unpack(packed).spec.function("a") == 0.25


def test_a_partial_and_an_object_go_by_value_with_what_they_call(file: Path) -> None:
    file.write_text(
        SOURCE
        + """
import functools

def times(completion, factor):
    return WEIGHTS[completion] * factor

class Times:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, completion):
        return times(completion, self.factor)

doubled = functools.partial(times, factor=2)
tripled = Times(3)
"""
    )
    plugins = [Host([]).reward(f"{file}:{name}") for name in ("doubled", "tripled")]
    assert [pack_reference(plugin) for plugin in plugins] == [None, None]
    packed = [pack_value(plugin) for plugin in plugins]
    del sys.modules[plugins[1].spec.function.__module__]
    assert [unpack(data).spec.function("a") for data in packed] == [0.5, 0.75]


def test_what_only_people_read_stays_behind() -> None:
    again = unpack(pack_value(bound(lambda completion: 1.0)))
    assert (again.spec.doc, again.spec.cases, again.spec.options) == ("", (), ())


def test_a_function_of_trl_is_wrapped_again_on_the_other_side(file: Path) -> None:
    file.write_text("def lengths(completions, **kwargs):\n    return [float(len(c)) for c in completions]\n")
    plugin = Host([]).reward(f"{file}:lengths")
    for packed in (pack_reference(plugin), pack_value(plugin)):
        assert packed is not None
        assert type(unpack(packed).spec.function) is type(plugin.spec.function)


def test_what_cannot_be_pickled_says_so() -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match="cannot pickle"):
        pack_value(bound(lambda completion: float(lock.locked())))
