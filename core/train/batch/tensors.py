"""Pads the token ids of rollouts into tensors and splits them into micro batches.

The names are TRL's, whose own loss may be used (train.head='trl'): `prompt_ids` and `prompt_mask` [N, P],
`completion_ids`, `completion_mask`, `tool_mask` and `sampling_per_token_logps` [N, T], `advantages` [N], or [N, T]
where turns have advantages of their own, and the number `num_items_in_batch`. Prompts are padded on the left,
completions on the right.

A rollout that is a tree has a row for each branch (`Trajectory.branches`), any other one row. Only a batch with a tree
has `owner` [N], each row's rollout; its rows are adjacent. Micro batches hold whole rollouts, as many each.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch

from grpo.core.rollout.turns.play import Branch, Trajectory
from grpo.core.rollout.types import PromptIds
from grpo.plugins.errors import RunError

Tensors = dict[str, torch.Tensor]
OWNER = "owner"  # [N] int64, counted from 0, ascending
_NARROWEST = 2  # columns of a batch with trees: [N, 1] is a number for a whole rollout, never for a row of one token


def padded(prompts: PromptIds, rollouts: Sequence[Trajectory], pad_id: int, device: torch.device) -> Tensors:
    """Lays rollouts out. `prompts`: token ids, one prompt for each rollout."""
    trees = any(trajectory.branches for trajectory in rollouts)
    owners = [number for number, trajectory in enumerate(rollouts) for _ in trajectory.branches or (trajectory,)]
    rows: list[tuple[Sequence[int], Trajectory | Branch]] = []
    for prompt, rollout in zip(prompts, rollouts, strict=True):
        rows += [(branch.prompt, branch) for branch in rollout.branches] or [(prompt, rollout)]
    before = max(len(prompt) for prompt, _ in rows)
    after = max(_NARROWEST if trees else 1, *(len(segment.token_ids) for _, segment in rows))
    count = len(rows)
    prompt_ids = np.full((count, before), pad_id)
    completion_ids = np.full((count, after), pad_id)
    prompt_mask, completion_mask = np.zeros_like(prompt_ids), np.zeros_like(completion_ids)
    sampled = np.ones_like(completion_ids)
    logprobs = np.zeros((count, after), dtype=np.float32)
    for row, (prompt, segment) in enumerate(rows):
        prompt_ids[row, before - len(prompt) :] = prompt
        prompt_mask[row, before - len(prompt) :] = 1
        end = len(segment.token_ids)
        completion_ids[row, :end] = segment.token_ids
        completion_mask[row, :end] = 1
        sampled[row, :end] = segment.sampled
        logprobs[row, :end] = segment.logprobs
    arrays = {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": completion_ids,
        "completion_mask": completion_mask,
        "tool_mask": sampled,
        "sampling_per_token_logps": logprobs,
    }
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    if trees:
        tensors[OWNER] = torch.tensor(owners)
    return {name: tensor.to(device) for name, tensor in tensors.items()}


def whole_ids(tensors: Tensors) -> torch.Tensor:
    """Returns prompts and completions, [N, P + T]."""
    return torch.cat([tensors["prompt_ids"], tensors["completion_ids"]], dim=1)


def whole_mask(tensors: Tensors) -> torch.Tensor:
    """Returns 1 for real tokens, [N, P + T]."""
    return torch.cat([tensors["prompt_mask"], tensors["completion_mask"]], dim=1)


def counted(tensors: Tensors) -> torch.Tensor:
    """Returns 1 for tokens that the policy chose and 0 for those that an environment put between them, [N, T]."""
    return tensors["completion_mask"] * tensors["tool_mask"]


def narrowest(tensors: Tensors) -> int:
    """Returns the least number of completion columns left."""
    return _NARROWEST if OWNER in tensors else 1


def rollouts_in(tensors: Tensors) -> int:
    return len(tensors[OWNER].unique()) if OWNER in tensors else len(tensors["completion_ids"])


def spread(values: torch.Tensor, tensors: Tensors) -> torch.Tensor:
    """Repeats values of rollouts for their rows, [N, ...]."""
    return values[tensors[OWNER]] if OWNER in tensors else values


def rows_of(tensors: Tensors, count: int) -> list[slice]:
    """Returns the rows of each `count` rollouts in order; processes with as many rollouts get as many slices."""
    if OWNER not in tensors:
        return [slice(first, first + count) for first in range(0, len(tensors["completion_ids"]), count)]
    sizes = tensors[OWNER].unique_consecutive(return_counts=True)[1].tolist()
    ends = [0, *itertools.accumulate(sum(sizes[first : first + count]) for first in range(0, len(sizes), count))]
    return [slice(*both) for both in itertools.pairwise(ends)]


def of_tokens(turns: torch.Tensor, counted: torch.Tensor, numbers: Sequence[int]) -> torch.Tensor:
    """Spreads advantages of turns [N, S] over their tokens; returns [N, T], 0 for all other tokens.

    `counted`: [N, T], 1 for tokens that the policy chose; a turn is a run of them. `numbers`: turns of each rollout,
    any if it has no counted token. Raises RunError if tokens do not separate the turns.
    """
    chosen = counted > 0
    begins = chosen & ~torch.nn.functional.pad(chosen, (1, 0))[:, :-1]
    turn = begins.long().cumsum(dim=1) - 1
    runs = begins.sum(dim=1).tolist()
    for row, (run, number) in enumerate(zip(runs, numbers, strict=True)):
        if run not in (0, number):
            raise RunError(
                f"rollout {row} of this batch has {number} turns, but its sampled tokens stand in {run} runs: a turn "
                "without a token, or nothing between two turns. Which tokens are whose cannot be told. Use a chat "
                "template that puts a token between turns, or an advantage for whole completions, such as rloo."
            )
    return turns.gather(1, turn.clamp(min=0)) * chosen


def filled_up(tensors: Tensors, rollouts: int) -> Tensors:
    """Pads a batch to so many rollouts with rows that only count in averages, as groups without signal do."""
    present = rollouts_in(tensors)
    missing = rollouts - present
    if not missing:
        return tensors
    last = {name: tensor[-1:] for name, tensor in tensors.items() if tensor.ndim}
    last |= {name: torch.zeros_like(last[name]) for name in ("completion_mask", "advantages")}
    filled = tensors | {name: torch.cat([tensors[name], *[row] * missing]) for name, row in last.items()}
    if OWNER in tensors:
        more = torch.arange(present, rollouts, device=tensors[OWNER].device)
        filled[OWNER] = torch.cat([tensors[OWNER], more])
    return filled


def micro_batches(tensors: Tensors, count: int, *, shuffled: bool) -> list[Tensors]:
    """Splits rollouts into `count` equal parts, groups together; `shuffled` (by torch) for losses over a batch."""
    rollouts = rollouts_in(tensors)
    order, size = torch.randperm(rollouts) if shuffled else torch.arange(rollouts), rollouts // count
    dealt = [order[number * size : (number + 1) * size] for number in range(count)]
    if OWNER in tensors:
        rows = rows_of(tensors, 1)
        dealt = [
            torch.cat([torch.arange(rows[number].start, rows[number].stop) for number in part.tolist()])
            for part in dealt
        ]
    return [{name: tensor if tensor.ndim == 0 else tensor[part] for name, tensor in tensors.items()} for part in dealt]
