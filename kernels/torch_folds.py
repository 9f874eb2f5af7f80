"""Implements the passes over a tile of logits in plain torch, in place.

`fold` runs once per tile and overwrites the logits with exp(z - m), where m is the row's largest logit so far; the
caller multiplies sums under an older m by `sums.shrink`. `gradient` runs on tiles projected again, with final sums.
"""

from __future__ import annotations

import torch

from grpo.kernels.head import Head
from grpo.kernels.sums import TAKEN_OUT, Known, Sums
from grpo.kernels.tiles import spans

COLUMNS = 1024  # of a wide tile that need a second room at a time


def boost(head: Head) -> float:
    """Returns the factor of the returned tiles: 1, since they stay in the dtype of sums."""
    return 1.0


def fold(
    y: torch.Tensor, target: torch.Tensor, first: int, sums: Sums, head: Head, *, entropy: bool, weights: bool
) -> torch.Tensor:
    """Folds the logits of the vocabulary entries from `first` on into the sums of their rows.

    `y`: [n, w] in the dtype of sums, from `Head.logits`; overwritten. `target`: [n] int64. `entropy`: keep `spread`,
    too. `weights`: the returned tile is used. Returns [n, w]: exp(z - m), 0 at the target; with a softcap times its
    derivative.
    """
    z, slope = _capped(y, head, slope=weights)
    column = (target - first).clamp(0, y.shape[1] - 1)[:, None]
    here = (target - first == column[:, 0])[:, None]
    at_target = z.gather(1, column)
    sums.target.copy_(torch.where(here[:, 0], at_target[:, 0], sums.target))
    if slope is not None:
        sums.slope.copy_(torch.where(here[:, 0], slope.gather(1, column)[:, 0], sums.slope))
    z.scatter_(1, column, torch.where(here, TAKEN_OUT, at_target))

    peak = torch.maximum(sums.peak, z.amax(dim=1))
    fallen = sums.peak - peak
    torch.exp(fallen, out=sums.shrink)
    z.sub_(peak[:, None])
    if entropy:
        sums.spread.add_(sums.total * fallen).mul_(sums.shrink)
        for left, right in spans(z.shape[1], COLUMNS):
            part = z[:, left:right]
            e = torch.exp(part)
            sums.spread.add_(torch.linalg.vecdot(e, part))
            part.copy_(e)
    else:
        z.exp_()
    sums.total.mul_(sums.shrink).add_(z.sum(dim=1))
    sums.peak.copy_(peak)
    return z.mul_(slope) if slope is not None else z


def gradient(y: torch.Tensor, first: int, head: Head, known: Known) -> torch.Tensor:
    """Overwrites logits with the gradient of the loss, up to the constant `Head.gain`, and returns them.

        dL/dz_j = dL/dlogp (1[j = t] - p_j) - dL/dentropy p_j (log p_j + entropy)

    `known`: of these rows. The others are those of `fold`.
    """
    z, slope = _capped(y, head, slope=True)
    column = (known.target - first).clamp(0, y.shape[1] - 1)[:, None]
    here = (known.target - first == column[:, 0])[:, None]
    z.sub_(known.log_total[:, None])
    own = known.grad_logp * known.missed
    if known.grad_entropy is None or known.entropy is None:
        z.exp_().mul_(-known.grad_logp[:, None])
    else:
        p = torch.exp(z)
        z.add_(known.entropy[:, None]).mul_(-known.grad_entropy[:, None])
        own = own + (p * z).gather(1, column)[:, 0]
        z.sub_(known.grad_logp[:, None]).mul_(p)
    z.scatter_(1, column, torch.where(here, own[:, None], z.gather(1, column)))
    return z.mul_(slope) if slope is not None else z


def _capped(y: torch.Tensor, head: Head, *, slope: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    if head.softcap is None:
        return y, None
    t = y.div_(head.softcap).tanh_()
    flat = 1 - t * t if slope else None
    return t.mul_(head.softcap / head.temperature), flat
