"""Checks an advantage estimator as the trainer calls it, on made-up scores.

One that claims `unbiased`, or is of turns, is compared with the exact gradient of small policies.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import torch

from grpo.core.check.report import Complaint, Report, Tried, report_on
from grpo.core.train.advantages.compute import group_advantages
from grpo.plugins._spec.binding import BoundAdvantage
from grpo.plugins.host import bound_of
from grpo.plugins.specs import AdvantageSpec

_NAN = math.nan
_CLOSE = 1e-6
_POLICIES = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]], dtype=torch.float64)
_WORTH = torch.tensor([[0.0, 1.0, 0.4], [1.0, 0.25, 0.0]], dtype=torch.float64)
_MEMBERS = 3
_GOES_ON = (0.6, 0.3)  # the chances of a second turn, and of doing well in it


def check_advantage(advantage: str | AdvantageSpec | BoundAdvantage) -> Report:
    """Checks an advantage: a SPEC ("rloo", "pass_at_k:k=4", "./mine.py:mine"), an `AdvantageSpec`, or a bound one.

    Returns what does not hold; whatever the advantage does, nothing is raised on its account. Raises UsageError for a
    SPEC that names no advantage, or options that it does not take.
    """
    bound = bound_of(advantage, BoundAdvantage)
    return report_on(bound, _relations(bound))


def _relations(bound: BoundAdvantage) -> Tried:
    generator = torch.Generator().manual_seed(0)
    several = torch.rand(12, 2, generator=generator, dtype=torch.float64)
    right = (torch.rand(12, 1, generator=generator, dtype=torch.float64) < 0.5).double()
    for scores in (several, right, several[:, :1]):
        yield "finite", _infinite(_values(bound, scores), "scores between 0 and 1")
        if not torch.equal(_values(bound, scores), _values(bound, scores)):
            yield "same again", ["the same scores get other advantages when they are asked for again"]
        yield "permutation", _permuted(bound, scores)
        yield "failures", _missing(bound, scores)
    yield "same again", ()
    yield "equal scores", _equal(bound)
    yield "one of a group", _lonely(bound)
    yield "abstentions", _abstained(bound, several)
    yield "order", _ordered(bound, generator)
    yield "shift", _shifted(bound, right)
    yield "expected gradient", _gradient(bound)
    if bound.spec.turns:
        yield "expected gradient of turns", _turns(bound)


def _values(bound: BoundAdvantage, scores: torch.Tensor, failed: Sequence[int] = (), size: int = 4) -> torch.Tensor:
    """Returns the advantages of [N, R] scores as the trainer computes them, [N / size, size] float64."""
    marks = torch.tensor([number in failed for number in range(len(scores))])
    weights = torch.tensor([1.0, 0.5][: scores.shape[1]], dtype=torch.float64)
    each = scores[:, None].nan_to_num(0.0) if bound.spec.turns else None
    return group_advantages(scores, marks, weights, size, bound, each).values.view(-1, size).double()


def _infinite(values: torch.Tensor, example: str) -> Iterator[Complaint]:
    if not values.isfinite().all():
        message = f"gives {values[~values.isfinite()][0].item()} to a scored completion"
        yield Complaint(message, example=example)


def _alike(first: torch.Tensor, second: torch.Tensor) -> bool:
    return torch.allclose(first, second, rtol=1e-5, atol=_CLOSE, equal_nan=True)


def _permuted(bound: BoundAdvantage, scores: torch.Tensor) -> Iterator[str]:
    values = _values(bound, scores)
    members, groups = torch.tensor([2, 0, 3, 1]), torch.tensor([1, 2, 0])
    folded = scores.view(3, 4, -1)
    if not _alike(_values(bound, folded[:, members].reshape(scores.shape)), values[:, members]):
        yield "the order of a group's members changes their advantages"
    if not _alike(_values(bound, folded[groups].reshape(scores.shape)), values[groups]):
        yield "the order of the groups changes the advantages of their members"


def _missing(bound: BoundAdvantage, scores: torch.Tensor) -> Iterator[str | Complaint]:
    """Checks that a failed completion counts as one that was never sampled, whatever its other rewards gave it."""
    folded = scores.view(3, 4, -1)
    without = _values(bound, folded[:, :3].reshape(9, -1), size=3)
    for left in (0.0, 1e6):
        spoiled = folded.clone()
        spoiled[:, 3] = left
        values = _values(bound, spoiled.reshape(12, -1), failed=(3, 7, 11))
        yield from _infinite(values, "a failed completion in each group")
        if not _alike(values[:, :3], without):
            yield "a completion that a reward failed on moves the others of its group"
            return


def _equal(bound: BoundAdvantage) -> Iterator[str | Complaint]:
    for worth in (0.0, 1.0, 0.3):
        # A second group with a spread, for advantages that look at the batch.
        scores = torch.tensor([[worth]] * 4 + [[0.0], [1.0], [1.0], [0.0]], dtype=torch.float64)
        for given in (scores, scores[:4]):
            values = _values(bound, given)
            yield from _infinite(values, f"a group with four scores of {worth}")
            if values.isfinite().all() and (values[0] - values[0, 0]).abs().max() > _CLOSE:
                yield "members of a group with equal scores have different advantages"


def _lonely(bound: BoundAdvantage) -> Iterator[Complaint]:
    scores = torch.tensor([[1.0], [0.0], [0.0], [0.0], [0.0], [1.0], [0.5], [1.0]], dtype=torch.float64)
    for failed in ((1, 2, 3), (0, 1, 2, 3)):
        yield from _infinite(_values(bound, scores, failed), f"{4 - len(failed)} of four scored")
    yield from _infinite(_values(bound, scores[:1], size=1), "a batch of one completion")


def _abstained(bound: BoundAdvantage, scores: torch.Tensor) -> Iterator[str]:
    """Checks that a reward that abstains on every completion counts as one that the run does not have."""
    silent = scores.clone()
    silent[:, 1] = _NAN
    if not _alike(_values(bound, silent), _values(bound, scores[:, :1])):
        yield "a reward that abstains on every completion changes advantages"


def _ordered(bound: BoundAdvantage, generator: torch.Generator) -> Iterator[str]:
    for scores in (
        torch.rand(8, 1, generator=generator, dtype=torch.float64),
        torch.eye(8, dtype=torch.float64)[:, :1],
    ):
        for totals, values in zip(scores.view(2, 4), _values(bound, scores), strict=True):
            better = totals[:, None] > totals[None]
            if (better & (values[:, None] < values[None] - _CLOSE)).any():
                yield "a better completion of a group has a lower advantage than a worse one"


def _shifted(bound: BoundAdvantage, scores: torch.Tensor) -> Iterator[Complaint]:
    if not _alike(_values(bound, scores), _values(bound, scores + 0.5)):
        yield Complaint("0.5 more for every completion changes advantages, so where scores begin matters", "note")


def _gradient(bound: BoundAdvantage) -> Iterator[str | Complaint]:
    """Checks the expected policy gradient over every batch of two prompts that two small policies can sample."""
    wanted = _POLICIES * (_WORTH - (_POLICIES * _WORTH).sum(dim=1, keepdim=True))
    gradient = torch.zeros_like(wanted)
    prompts = torch.arange(2).repeat_interleave(_MEMBERS)
    for drawn in itertools.product(range(3), repeat=2 * _MEMBERS):
        chosen = torch.tensor(drawn)
        chance = _POLICIES[prompts, chosen].prod()
        values = _values(bound, _WORTH[prompts, chosen][:, None], size=_MEMBERS).view(-1)
        if not values.isfinite().all():
            return  # said by another relation
        score = torch.eye(3, dtype=torch.float64)[chosen] - _POLICIES[prompts]
        gradient.index_add_(0, prompts, chance * values[:, None] * score / _MEMBERS)
    yield from _compared(bound, gradient, wanted)


def _turns(bound: BoundAdvantage) -> Iterator[str | Complaint]:
    """Checks it for a policy that stops after its first turn, or takes a second one in which it does well or badly."""
    first, second = _GOES_ON
    chances = torch.tensor([1 - first, first * second, first * (1 - second)], dtype=torch.float64)
    # d log p of each turn by the logits of going on and of doing well, [3 rollouts, 2 turns, 2]
    score = torch.tensor(
        [[[-first, 0], [0, 0]], [[1 - first, 0], [0, 1 - second]], [[1 - first, 0], [0, -second]]], dtype=torch.float64
    )
    earned = torch.tensor([[0.3, _NAN], [0.1, 1.0], [0.1, -0.2]], dtype=torch.float64)
    totals = earned.nansum(dim=1)
    wanted = (chances[:, None] * totals[:, None] * score.sum(dim=1)).sum(dim=0)
    gradient = torch.zeros_like(wanted)
    for drawn in itertools.product(range(3), repeat=_MEMBERS):
        chosen = torch.tensor(drawn)
        failed, weights = torch.zeros(_MEMBERS, dtype=torch.bool), torch.ones(1, dtype=torch.float64)
        given = group_advantages(totals[chosen, None], failed, weights, _MEMBERS, bound, earned[chosen, :, None])
        values = given.values[:, None].expand(-1, 2) if given.turns is None else given.turns
        if not values.isfinite().all():
            yield "gives NaN or infinity to a turn"
            return
        gradient += chances[chosen].prod() * (values.double()[:, :, None] * score[chosen]).sum(dim=(0, 1)) / _MEMBERS
    yield from _compared(bound, gradient, wanted)


def _compared(bound: BoundAdvantage, gradient: torch.Tensor, wanted: torch.Tensor) -> Iterator[str | Complaint]:
    """Compares an expected gradient with the gradient of the mean total (`wanted`) by the angle between them."""
    cosine = float((gradient * wanted).sum() / (gradient.norm() * wanted.norm()).clamp(min=1e-12))
    angle = math.degrees(math.acos(min(1.0, cosine)))
    off = f"{angle:.1f} degrees off the gradient of the mean total in expectation"
    if cosine <= 0:
        yield f"points away from a higher mean total ({angle:.0f} degrees)"
    elif angle > 0.05 and bound.spec.unbiased and not bound.options:
        yield (
            f"claims to be unbiased, but is {off}. A baseline or a scale depends on the completion's own score; leave "
            "that out, or do not claim it"
        )
    elif angle > 0.05:
        yield Complaint(f"{off}; it does not claim to be unbiased", "note")
