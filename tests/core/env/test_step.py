"""One step of an environment: what the contract allows comes through, the rest is said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from grpo.core.env.episodes import start_episode
from grpo.core.env.step import take_step


def stepped(*answer: Any) -> Any:
    return take_step("left", SimpleNamespace(step=lambda action: answer))


def test_numbers_of_numpy_are_as_good_as_pythons_own() -> None:
    info = {
        "success": numpy.bool_(True),
        "scores": {"near": numpy.float32(0.5), "steps": numpy.int64(3)},
        "grid": numpy.zeros((2, 2)),
        "broken": numpy.float32("nan"),
        "thing": object(),
    }
    answer = stepped("you see a wall", numpy.float32(0.25), numpy.bool_(True), numpy.bool_(False), info)
    assert (answer.reward, answer.ended) == (0.25, True)
    assert answer.final_info == {
        "success": True,
        "scores": {"near": 0.5, "steps": 3},
        "terminated": True,
        "truncated": False,
    }
    assert answer.info["success"] is True, "the verifier asks for a bool"


@pytest.mark.parametrize(
    ("answer", "fault", "error"),
    [
        ((7, 0.0, True, False, {}), "is an int, not text", TypeError),
        (("", float("nan"), True, False, {}), "the reward is nan", ValueError),
        (("", float("inf"), True, False, {}), "the reward is inf", ValueError),
        (("", None, True, False, {}), "the reward is None, not a number", TypeError),
        (("", [1.0], True, False, {}), "the reward is a list, not a number", TypeError),
        (("", "1", True, False, {}), "the reward is the text '1'", TypeError),
        (("", 1.0, True, False, None), "the info that step returned is a NoneType", TypeError),
        (("", 0.0, True, {}), "step returned 4 values, not observation, reward", TypeError),
        (("\ud800", 0.0, True, False, {}), "surrogates", UnicodeEncodeError),
    ],
)
def test_what_breaks_the_contract_is_said(answer: Any, fault: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=fault):
        stepped(*answer)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("text alone", "reset returned a str, not observation and info"),
        (("text", None), "the info that reset returned is a NoneType, not a dict"),
        (
            ("text", {"prompt": [{"role": "user", "content": [{"type": "image_url"}]}]}),
            "message 1 of the prompt has a list",
        ),
    ],
)
def test_a_start_that_breaks_the_contract_is_said(answer: Any, fault: str) -> None:
    with pytest.raises(TypeError, match=fault):
        start_episode("mine", SimpleNamespace(reset=lambda: answer), 0, {}, {}, "")
