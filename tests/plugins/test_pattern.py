"""A pattern that is compiled when it is first used is the compiled pattern, only later."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

import grpo.envs
import grpo.rewards
from grpo.plugins._pattern import LazyPattern, lazy_pattern

TEXT = r"(?P<word>[a-z]+)-(\d)"


def test_it_answers_as_the_compiled_pattern_does() -> None:
    compiled = re.compile(TEXT, re.IGNORECASE)
    for name in [name for name in dir(compiled) if not name.startswith("_")]:
        fresh = getattr(lazy_pattern(TEXT, re.IGNORECASE), name)  # each one may be the first that is asked for
        assert type(fresh) is type(getattr(compiled, name)), name
        if not callable(fresh):
            assert fresh == getattr(compiled, name), name
    late = lazy_pattern(TEXT, re.IGNORECASE)
    assert late.sub("x", "AB-1 c-2") == "x x"
    assert [match["word"] for match in late.finditer("AB-1 c-2")] == ["AB", "c"]
    assert (late.findall("q-7"), late.fullmatch("q-77"), late.split("a-1b")) == (
        [("q", "7")],
        None,
        ["", "a", "1", "b"],
    )
    assert lazy_pattern(rb"\d").search(b"a1") is not None


def test_it_is_compiled_once_and_not_before() -> None:
    late = lazy_pattern("(")
    with pytest.raises(re.error):
        late.search("")
    late = lazy_pattern("a")
    assert set(vars(late)) == {"_written"}
    first = late.search
    assert late.search == first  # a method of the same compiled pattern
    with pytest.raises(AttributeError):
        late.serach("a")  # type: ignore[attr-defined]


def test_it_can_be_copied_and_sent_before_and_after_its_first_use() -> None:
    late = lazy_pattern(TEXT)
    for again in (copy.deepcopy(late), pickle.loads(pickle.dumps(late))):
        assert again.search("a-1")
    assert late.search("a-1")
    for again in (copy.deepcopy(late), pickle.loads(pickle.dumps(late))):
        assert again.search("a-1")


def test_threads_that_ask_at_once_all_get_an_answer() -> None:
    for _ in range(50):
        late = lazy_pattern(TEXT)
        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(late.fullmatch, ["a-1"] * 8))


def test_every_pattern_of_the_rewards_and_environments_can_be_compiled() -> None:
    """What `re.compile` would have refused at the import is refused here."""
    patterns = []
    for package in (grpo.rewards, grpo.envs):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".guest" not in info.name and ".inside" not in info.name:
                patterns += list(_patterns(list(vars(importlib.import_module(info.name)).values()), depth=3))
    assert len(patterns) > 200
    assert all(isinstance(pattern.groups, int) for pattern in patterns)


def _patterns(value: object, depth: int) -> list[re.Pattern[str]]:
    if isinstance(value, LazyPattern):
        return [value]  # type: ignore[list-item]
    if isinstance(value, dict):
        value = list(value.values())
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        value = [getattr(value, name) for name in value.__dataclass_fields__]
    if isinstance(value, list | tuple) and depth:
        return [pattern for part in value for pattern in _patterns(part, depth - 1)]
    return []
