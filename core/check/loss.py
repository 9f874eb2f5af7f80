"""Checks a loss as the trainer calls it, on made-up tokens: padding, advantages of both signs, an older policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial

import torch

from grpo.core.check.report import Complaint, Report, Tried, report_on
from grpo.core.train.update.objective import Counts, Objective, Tokens, policy_loss, takes_rows
from grpo.plugins._spec.binding import BoundLoss
from grpo.plugins.host import bound_of
from grpo.plugins.specs import LossSpec

_LENGTHS = (7, 4, 1, 6, 3)
_WIDTH = 7


def check_loss(loss: str | LossSpec | BoundLoss) -> Report:
    """Checks a loss: a SPEC ("dapo:epsilon_high=0.28", "./mine.py:mine"), what `@loss` returned, or a bound loss.

    Returns what does not hold; whatever the loss does, nothing is raised on its account. Raises UsageError for a SPEC
    that names no loss, or options that it does not take.
    """
    bound = bound_of(loss, BoundLoss)
    return report_on(bound, _relations(bound))


@dataclass(frozen=True, slots=True)
class _Gradients:
    """A loss and its gradients by log-probabilities and by entropies, [B, T] each."""

    loss: torch.Tensor
    logps: torch.Tensor
    entropies: torch.Tensor

    @property
    def finite(self) -> bool:
        return bool(self.loss.isfinite() and self.logps.isfinite().all() and self.entropies.isfinite().all())


def _relations(bound: BoundLoss) -> Tried:
    own, older = _tokens(bound, apart=0.0), _tokens(bound, apart=0.3)
    everyone = _counts(own)
    for tokens, what in ((own, "its own completions"), (older, "completions of an older policy")):
        reference = _gradients(bound, tokens, everyone)
        if not reference.finite:
            yield "finite", [Complaint("the loss, or its gradient, is not a finite number", example=what)]
            return
        yield "finite", ()
        if not bound.spec.every_row:
            yield "no advantage", _no_advantage(bound, tokens)
        yield "padding", _padding(bound, tokens, reference)
        yield "other completions", _other_rows(bound, tokens, reference)
        yield "float64", _precision(bound, tokens, reference)
    yield "direction", _direction(bound, own, _gradients(bound, own, everyone))
    what = (
        "a completion that is cut into rows, as an agent's is, costs something else. Use sequence_sum, sequence_mean "
        "and sequence_length; runs with such completions refuse it"
    )
    yield "rows of a completion", [] if takes_rows(bound) else [Complaint(what, "note")]
    far = "no finite number where policies are 20 nats apart; bound the ratio"
    bounded = _gradients(bound, _tokens(bound, apart=20.0), everyone).finite
    yield "far ratios", [] if bounded else [Complaint(far, "warning")]


def _tokens(bound: BoundLoss, apart: float) -> Tokens:
    """Completions in float64; `apart`: nats between the policy and the one that sampled."""
    generator = torch.Generator().manual_seed(0)

    def draw() -> torch.Tensor:
        return torch.rand(len(_LENGTHS), _WIDTH, generator=generator, dtype=torch.float64)

    mask = torch.tensor([[1] * length + [0] * (_WIDTH - length) for length in _LENGTHS])
    logps = (-3 * draw() - 0.1) * mask
    return Tokens(
        logps=logps,
        mask=mask,
        advantages=torch.tensor([1.5, -0.7, 0.9, -1.2, 0.0], dtype=torch.float64),
        old_logps=(logps + apart * (2 * draw() - 1) * mask) if apart else None,
        importance=0.5 + draw() if bound.spec.weighs else None,
        entropies=2 * draw() * mask if bound.spec.entropies != "none" else None,
    )


def _counts(tokens: Tokens) -> Counts:
    number = tokens.mask.sum()
    return Counts(rollouts=len(_LENGTHS), tokens=number, batch_tokens=number, longest=_WIDTH + 2, accumulation=1)


def _gradients(bound: BoundLoss, tokens: Tokens, counts: Counts) -> _Gradients:
    logps = tokens.logps.detach().requires_grad_()
    entropies = None if tokens.entropies is None else tokens.entropies.detach().requires_grad_()
    loss = policy_loss(Objective(bound), replace(tokens, logps=logps, entropies=entropies), counts).loss
    loss.backward()
    none = torch.zeros_like(logps)
    by_entropy = None if entropies is None else entropies.grad
    return _Gradients(
        loss.detach(), none if logps.grad is None else logps.grad, none if by_entropy is None else by_entropy
    )


def _alike(first: _Gradients, second: _Gradients, where: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    return torch.allclose(where(first.logps), where(second.logps), rtol=1e-9, atol=1e-12) and torch.allclose(
        where(first.entropies), where(second.entropies), rtol=1e-9, atol=1e-12
    )


def _no_advantage(bound: BoundLoss, tokens: Tokens) -> Iterator[str]:
    """Checks that completions without an advantage have no gradient: the trainer leaves them out."""
    without = _gradients(bound, replace(tokens, advantages=torch.zeros_like(tokens.advantages)), _counts(tokens))
    beside = _gradients(bound, tokens, _counts(tokens))  # whose last completion has none, beside others that have one
    if without.logps.any() or without.entropies.any() or beside.logps[-1].any() or beside.entropies[-1].any():
        what = "completions without an advantage have a gradient, and the trainer leaves them out"
        yield f"{what}. Declare every_row=True"


def _changed(tokens: Tokens, change: Callable[[str, torch.Tensor], torch.Tensor]) -> Tokens:
    tensors = {field.name: getattr(tokens, field.name) for field in fields(tokens)}
    return replace(tokens, **{name: change(name, tensor) for name, tensor in tensors.items() if tensor is not None})


def _padding(bound: BoundLoss, tokens: Tokens, reference: _Gradients) -> Iterator[str]:
    """Checks that neither the width of the padding nor the values in it change the loss."""
    fill = {"mask": 0, "logps": -4.0, "old_logps": -9.0, "importance": 1.0, "entropies": 5.0}

    def wider(name: str, values: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(values, (0, _WIDTH), value=fill[name]) if name in fill else values

    moved = _gradients(bound, _changed(tokens, wider), _counts(tokens))
    if not torch.isclose(moved.loss, reference.loss, rtol=1e-9) or not _alike(
        moved, reference, lambda it: it[:, :_WIDTH][tokens.mask == 1]
    ):
        yield "more padding changes the loss. Divide sums over tokens by those of the mask"


def _other_rows(bound: BoundLoss, tokens: Tokens, reference: _Gradients) -> Iterator[Complaint]:
    """Checks that a completion's gradient does not depend on the others of its forward pass."""
    for kept in ([0, 1], [3, 2]):
        alone = _gradients(bound, _changed(tokens, partial(_rows, kept)), _counts(tokens))
        same = _Gradients(reference.loss, reference.logps[kept], reference.entropies[kept])
        if not _alike(alone, same, lambda it: it):
            what = "a completion's gradient depends on what else is in its forward pass"
            yield Complaint(what, "note" if bound.spec.every_row else "error")  # it says that it looks at all
            return


def _rows(kept: list[int], name: str, values: torch.Tensor) -> torch.Tensor:
    return values[kept]


def _precision(bound: BoundLoss, tokens: Tokens, reference: _Gradients) -> Iterator[str]:
    single = _changed(tokens, lambda name, values: values.float() if values.is_floating_point() else values)
    rounded = _gradients(bound, single, _counts(tokens))
    if not torch.allclose(rounded.logps.double(), reference.logps, rtol=1e-3, atol=1e-5):
        yield "gradients in float32 are not those in float64"


def _direction(bound: BoundLoss, tokens: Tokens, reference: _Gradients) -> Iterator[str | Complaint]:
    """Checks that a positive advantage makes the policy's own tokens more probable, and a negative one less."""
    for row, worth in enumerate(tokens.advantages.tolist()):
        gradient = reference.logps[row, : _LENGTHS[row]]
        if worth and (gradient * worth > 0).any():
            yield "a token of a better completion becomes less probable, or the reverse"
        elif worth and not gradient.any() and not bound.spec.every_row:  # which may choose among completions
            yield Complaint("a completion with an advantage has no gradient at all", "warning")
