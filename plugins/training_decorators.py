"""Provides `@loss`, `@advantage` and `@sampler`, which turn a function of one value into a spec and keep its types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from grpo.plugins._spec.signature import options_after
from grpo.plugins.decorators import refuse_faults, refuse_positional
from grpo.plugins.specs import AdvantageFunction, LossFunction, Parameters, SamplerFunction
from grpo.plugins.training import Average, Entropies, TokenCosts

if TYPE_CHECKING:
    import torch


class LossDecorator(Protocol):
    """Makes a loss of a function that returns what tokens cost."""

    def __call__(
        self, function: Callable[Parameters, torch.Tensor | TokenCosts], /
    ) -> LossFunction[Parameters, torch.Tensor | TokenCosts]: ...


class AdvantageDecorator(Protocol):
    """Makes an advantage of a function that returns one for each completion."""

    def __call__(
        self, function: Callable[Parameters, torch.Tensor], /
    ) -> AdvantageFunction[Parameters, torch.Tensor]: ...


class SamplerDecorator(Protocol):
    """Makes a sampler of a function that returns row numbers."""

    def __call__(
        self, function: Callable[Parameters, Sequence[int]], /
    ) -> SamplerFunction[Parameters, Sequence[int]]: ...


def loss(
    *misplaced: object,
    version: int = 0,
    average: Average = "batch",
    name: str | None = None,
    entropies: Entropies = "none",
    every_row: bool = False,
    weighs: bool = False,
    prepare: Callable[..., None] | None = None,
) -> LossDecorator:
    """Makes a loss of a function `(tokens: LossTokens, *, options)` that returns what each token costs.

    The trainer leaves out what does not count, averages, adds the KL term and corrects for a rollout engine.

    Args:
        version: raise it when the same tokens cost something else. It may be left out in a file, not in a package.
        average: over all tokens of the batch ("batch"), each completion and then completions ("completion"), the
            tokens of the micro batch ("micro_batch"), completions times the longest one that may be sampled
            ("constant"), or completions alone, their tokens summed up ("sum").
        name: the public name; default: the function's.
        entropies: whether it reads the policy's entropies, and whether with a gradient.
        every_row: completions without an advantage are computed too: some term is no multiple of it, or the loss looks
            at all completions of a micro batch, which then come from the whole batch in a random order.
        weighs: it multiplies with `tokens.importance` itself.
        prepare: called with the options when a SPEC is bound; raises a `UsageError` where they cannot work.

    Raises:
        SpecError: the signature or the metadata is not allowed.

    Example:
        >>> from grpo import LossTokens, loss
        >>> @loss(version=1, average="completion")
        ... def reinforce(tokens: LossTokens, *, scale: float = 1.0):
        ...     return -scale * tokens.advantages * tokens.logps
        >>> reinforce.average, [option.name for option in reinforce.options]
        ('completion', ['scale'])
    """
    refuse_positional("loss", misplaced)

    def decorate(function: Callable[..., object], /) -> Any:
        metadata = {"average": average, "entropies": entropies, "every_row": every_row, "weighs": weighs}
        return _spec_of(LossFunction, function, "tokens", name, version=version, prepare=prepare, **metadata)

    return decorate


def advantage(
    *misplaced: object,
    version: int = 0,
    name: str | None = None,
    unbiased: bool = False,
    turns: bool = False,
    prepare: Callable[..., None] | None = None,
) -> AdvantageDecorator:
    """Makes an advantage of a function `(scores: GroupScores, *, options)` that returns [groups, G] advantages.

    What it returns for a completion without a total does not count.

    Args:
        version: raise it when the same scores are worth something else. It may be left out in a file, not in a package.
        name: the public name; default: the function's.
        unbiased: in expectation the policy gradient is that of the mean total, up to a factor; `grpo plugins check`
            holds it to that, with its default options.
        turns: it reads `scores.turns` and may return [groups, G, T], an advantage for each turn.
        prepare: called with the options when a SPEC is bound; raises a `UsageError` where they cannot work.

    Raises:
        SpecError: the signature or the metadata is not allowed.

    Example:
        >>> from grpo import GroupScores, advantage
        >>> @advantage(version=1, unbiased=True)
        ... def centred(scores: GroupScores):
        ...     return scores.totals - scores.totals.nanmean(dim=1, keepdim=True)
        >>> centred.name, centred.options
        ('centred', ())
    """
    refuse_positional("advantage", misplaced)

    def decorate(function: Callable[..., object], /) -> Any:
        metadata = {"unbiased": unbiased, "turns": turns, "prepare": prepare}
        return _spec_of(AdvantageFunction, function, "scores", name, version=version, **metadata)

    return decorate


def sampler(*misplaced: object, version: int = 0, name: str | None = None, fewer: bool = False) -> SamplerDecorator:
    """Makes a sampler of a function `(seen: RowsSeen, *, options)` that returns `seen.count` row numbers.

    It is a function of what it is given: whoever needs random numbers takes `seen.random()`.

    Args:
        version: raise it when it chooses other rows. It may be left out in a file, not in a package.
        name: the public name; default: the function's.
        fewer: it may choose fewer rows than `seen.count`, one at least, where the others are not worth their tokens.

    Raises:
        SpecError: the signature or the metadata is not allowed.

    Example:
        >>> from grpo import RowsSeen, sampler
        >>> @sampler(version=1)
        ... def in_turn(seen: RowsSeen, *, first: int = 0) -> list[int]:
        ...     free = [row for row in range(first, seen.rows) if row not in seen.taken]
        ...     return seen.longest_ago(free)[: seen.count]
        >>> len(in_turn(RowsSeen(rows=5, count=2, step=1)))
        2
    """
    refuse_positional("sampler", misplaced)

    def decorate(function: Callable[..., object], /) -> Any:
        return _spec_of(SamplerFunction, function, "seen", name, version=version, fewer=fewer)

    return decorate


def _spec_of(made: type[Any], function: Callable[..., object], first: str, name: str | None, **metadata: object) -> Any:
    options = options_after(function, first)
    doc = inspect.getdoc(function) or ""
    spec = made(name=name or function.__name__, function=function, doc=doc, options=options, **metadata)
    refuse_faults(spec)
    return spec
