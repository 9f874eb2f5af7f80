"""`@loss` and `@advantage`: what they make of a function, what they refuse, and how their specs are named and bound."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo import AdvantageSpec, GroupScores, Host, LossSpec, LossTokens, advantage, loss
from grpo.plugins.errors import AmbiguousName, OptionError, PluginError, PluginNotFound, SpecError, UsageError

FILE = """
from grpo import advantage, loss

def refuse_zero(*, scale: float) -> None:
    if not scale:
        from grpo import OptionError
        raise OptionError("scale 0 learns nothing.")

@loss(version=2, average="sum", prepare=refuse_zero)
def mine(tokens, *, scale: float = 1.0):
    "Plain."
    return -scale * tokens.advantages * tokens.logps

@loss(version=1)
def other(tokens):
    return -tokens.advantages * tokens.logps

@advantage(version=1)
def worth(scores):
    return scores.totals
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def test_the_spec_has_what_the_function_says_and_is_called_as_it_is() -> None:
    @loss(version=3, average="completion", entropies="value", every_row=True, weighs=True)
    def doubled(tokens: LossTokens, *, factor: int = 2) -> Any:
        """Twice."""
        return factor, tokens

    assert isinstance(doubled, LossSpec)
    assert (doubled.name, doubled.version, doubled.doc, doubled.average) == ("doubled", 3, "Twice.", "completion")
    assert (doubled.entropies, doubled.every_row, doubled.weighs) == ("value", True, True)
    assert [(option.name, option.type, option.default) for option in doubled.options] == [("factor", int, 2)]
    tokens: Any = object()
    assert doubled(tokens) == (2, tokens)

    @advantage(version=1, name="even", unbiased=True)
    def odd(scores: GroupScores) -> Any:
        return scores

    assert isinstance(odd, AdvantageSpec)
    assert (odd.name, odd.unbiased, odd(tokens)) == ("even", True, tokens)


def other_name(logps: Any) -> Any: ...
def two_values(tokens: Any, mask: Any) -> Any: ...
def nothing() -> Any: ...
def reserved(tokens: Any, *, weight: float = 1.0) -> Any: ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (other_name, "given 'tokens' alone, and takes: logps"),
        (two_values, "takes: tokens, mask"),
        (nothing, "takes: nothing"),
        (reserved, "the option name 'weight' is reserved"),
        (object(), "is not a function"),
    ],
)
def test_a_function_that_no_trainer_can_call_is_refused(function: Callable[..., Any], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        loss(version=1)(function)


def test_words_that_mean_nothing_are_refused() -> None:
    for settings, says in (
        ({"average": "mean"}, "average 'mean' must be one of batch"),
        ({"entropies": "yes"}, "entropies"),
    ):
        with pytest.raises(SpecError, match=says):
            loss(version=1, **settings)(lambda tokens: tokens)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"Write @advantage\(\)"):
        advantage(lambda scores: scores)


def test_a_file_is_enough_and_options_are_checked(file: Path) -> None:
    host = Host([])
    bound = host.loss(f"{file}:mine@2:scale=0.5")
    assert (bound.name, bound.options, bound.spec.average) == ("mine", {"scale": 0.5}, "sum")
    assert host.advantage(str(file)).name == "worth", "the only one of the file"
    for spec, error, says in (
        (f"{file}:mine:scal=1", OptionError, "has no option 'scal'. Did you mean 'scale'"),
        (f"{file}:mine:scale=much", OptionError, "expected float"),
        (f"{file}:mine:scale=0", OptionError, "scale 0 learns nothing"),
        (f"{file}:mine@1", PluginNotFound, "version 2"),
        (f"{file}:mine:as=x", UsageError, "losses take no 'as'"),
        (f"{file}:mine:weight=2", UsageError, "losses take no 'weight'"),
        (str(file), AmbiguousName, "offers 2 losses: mine, other"),
        (f"{file}:worth", UsageError, "expected what @loss makes of a function, got the advantage 'worth'"),
        ("dappo", PluginNotFound, "no loss 'dappo'"),
    ):
        with pytest.raises(error) as refused:
            host.loss(spec)
        assert says in str(refused.value)


def test_a_prepare_function_that_breaks_is_the_plugins_fault() -> None:
    def broken(**_: Any) -> None:
        raise KeyError("x")

    host = Host([])
    spec = advantage(version=1, prepare=broken)(lambda scores: scores)
    with pytest.raises(PluginError, match=r"advantage '<lambda>' .* its prepare function raised KeyError"):
        host.advantage(host.give("advantage", spec))


def test_the_record_of_a_run_has_the_options_and_the_file(file: Path) -> None:
    host = Host([])
    lock = host.lock(host.loss(f"{file}:mine"))
    assert (lock["kind"], lock["name"], lock["version"], lock["options"]) == ("loss", "mine", 2, {"scale": 1.0})
    assert lock["sha256"]
