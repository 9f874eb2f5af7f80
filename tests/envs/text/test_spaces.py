"""The space of all texts."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import pytest
from gymnasium.vector.utils import create_shared_memory, read_from_shared_memory, write_to_shared_memory

from grpo.envs.text.spaces import SHARED, AnyText


def test_every_text_is_a_member_and_nothing_else_is() -> None:
    space = AnyText()
    for text in ("", " \n", "Zoë 🥚", "x" * 1_000_000):
        assert text in space
    for other in (b"x", 1, None, ["x"]):
        assert other not in space


def test_samples_are_members_and_follow_the_seed() -> None:
    space, again = AnyText(seed=5), AnyText(seed=5)
    samples = [space.sample() for _ in range(50)]
    assert samples == [again.sample() for _ in range(50)]
    assert all(sample in space and len(sample) <= 64 for sample in samples)
    assert len(set(samples)) > 40
    assert AnyText(sample_length=0).sample() == ""


def test_masks_and_negative_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="no mask"):
        AnyText().sample(mask=1)
    with pytest.raises(ValueError, match="sample_length"):
        AnyText(sample_length=-1)


def test_spaces_are_equal_and_survive_json() -> None:
    space = AnyText()
    assert space == AnyText(sample_length=9)
    assert space != gymnasium.spaces.Text(5)
    assert space.from_jsonable(space.to_jsonable(["a", "b"])) == ["a", "b"]
    assert not space.is_np_flattenable


def test_texts_pass_through_the_memory_that_processes_share() -> None:
    space = AnyText()
    memory = create_shared_memory(space, n=4)
    seen: Any = read_from_shared_memory(space, memory, n=4)
    assert tuple(seen) == ("",) * 4
    texts = ("Zoë 🥚\n", "", "\ud800\x00.", "x" * SHARED)
    written: Any
    for written in (texts, ("longer", "b", "", "short")):
        before = copy.deepcopy(seen)
        for index, text in enumerate(written):
            write_to_shared_memory(space, index, text, memory)
        assert (len(seen), seen[0], seen[-1], seen[1:3]) == (4, written[0], written[-1], written[1:3])
        assert copy.deepcopy(seen) == written != before
    long: Any = "é" * SHARED
    with pytest.raises(ValueError, match="shared_memory=False"):
        write_to_shared_memory(space, 0, long, memory)
    with pytest.raises(IndexError):
        seen[4]
