"""Pads the token ids of rollouts into tensors and splits them into micro batches.

The names are TRL's, whose own loss may be asked for (train.head='trl'): `prompt_ids` and `prompt_mask` [N, P],
`completion_ids`, `completion_mask`, `tool_mask` and `sampling_per_token_logps` [N, T], `advantages` [N], or [N, T]
where turns have advantages of their own, and `num_items_in_batch`, a number. Prompts are padded on the left and
completions on the right.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from grpo.core.rollout.turns.play import Trajectory
from grpo.plugins.errors import RunError

Tensors = dict[str, torch.Tensor]


def padded(
    prompts: Sequence[Sequence[int]], rollouts: Sequence[Trajectory], pad_id: int, device: torch.device
) -> Tensors:
    """Lays rollouts out.

    Args:
        prompts: token ids, one prompt for each rollout.
        rollouts: what followed them.
        pad_id: fills up.
        device: of the tensors.
    """
    before, after = max(map(len, prompts)), max(1, *(len(one.token_ids) for one in rollouts))
    count = len(rollouts)
    prompt_ids = torch.full((count, before), pad_id, dtype=torch.long)
    completion_ids = torch.full((count, after), pad_id, dtype=torch.long)
    prompt_mask, completion_mask = torch.zeros_like(prompt_ids), torch.zeros_like(completion_ids)
    sampled = torch.ones_like(completion_ids)
    logprobs = torch.zeros(count, after)
    for row, (prompt, one) in enumerate(zip(prompts, rollouts, strict=True)):
        prompt_ids[row, before - len(prompt) :] = torch.tensor(prompt)
        prompt_mask[row, before - len(prompt) :] = 1
        end = len(one.token_ids)
        completion_ids[row, :end] = torch.tensor(one.token_ids)
        completion_mask[row, :end] = 1
        sampled[row, :end] = torch.tensor(one.sampled, dtype=torch.long)
        logprobs[row, :end] = torch.tensor(one.logprobs)
    found = {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": completion_ids,
        "completion_mask": completion_mask,
        "tool_mask": sampled,
        "sampling_per_token_logps": logprobs,
    }
    return {name: tensor.to(device) for name, tensor in found.items()}


def whole_ids(tensors: Tensors) -> torch.Tensor:
    """[N, P + T] prompts and completions."""
    return torch.cat([tensors["prompt_ids"], tensors["completion_ids"]], dim=1)


def whole_mask(tensors: Tensors) -> torch.Tensor:
    """[N, P + T], 1 for real tokens."""
    return torch.cat([tensors["prompt_mask"], tensors["completion_mask"]], dim=1)


def counted(tensors: Tensors) -> torch.Tensor:
    """[N, T], 1 for tokens that the policy chose; those that an environment put between them are no choice."""
    return tensors["completion_mask"] * tensors["tool_mask"]


def of_tokens(turns: torch.Tensor, counted: torch.Tensor, numbers: Sequence[int]) -> torch.Tensor:
    """Spreads what turns are worth over their tokens.

    Args:
        turns: [N, S] a number for each turn.
        counted: [N, T], 1 for tokens that the policy chose; a turn is a run of them.
        numbers: how many turns each of N rollouts has; one without a counted token may have any.

    Returns:
        [N, T], 0 for all other tokens.

    Raises:
        RunError: turns cannot be told apart by their tokens, so that some would learn from another's advantage.
    """
    chosen = counted > 0
    begins = chosen & ~torch.nn.functional.pad(chosen, (1, 0))[:, :-1]
    turn = begins.long().cumsum(dim=1) - 1
    runs = begins.sum(dim=1).tolist()
    for row, (found, number) in enumerate(zip(runs, numbers, strict=True)):
        if found not in (0, number):
            raise RunError(
                f"rollout {row} of this batch has {number} turns, but its sampled tokens stand in {found} runs: a turn "
                "without a token, or nothing between two turns. Which tokens are whose cannot be told. Use a chat "
                "template that puts a token between turns, or an advantage for whole completions, such as rloo."
            )
    return turns.gather(1, turn.clamp(min=0)) * chosen


def filled_up(tensors: Tensors, rows: int) -> Tensors:
    """Fills a batch whose step asks fewer prompts up to `rows` rows, with rows that have no part in the loss.

    An average over rows then counts them as it counts groups without signal, which they stand for.
    """
    missing = rows - len(tensors["completion_ids"])
    if not missing:
        return tensors
    last = {name: tensor[-1:] for name, tensor in tensors.items() if tensor.ndim}
    last |= {name: torch.zeros_like(last[name]) for name in ("completion_mask", "advantages")}
    return tensors | {name: torch.cat([tensors[name], *[row] * missing]) for name, row in last.items()}


def micro_batches(tensors: Tensors, count: int, *, shuffled: bool) -> list[Tensors]:
    """Deals the rows out to `count` micro batches of equal size.

    Rows stay in their order, so that those of a group share their prompt, unless a loss looks at a micro batch as a
    whole (an average, a quantile, how a router spreads tokens): then they are shuffled by torch's generator, so that
    it does not look at single groups.
    """
    rows = len(tensors["completion_ids"])
    order, size = torch.randperm(rows) if shuffled else torch.arange(rows), rows // count
    return [
        {
            name: tensor if tensor.ndim == 0 else tensor[order[number * size : (number + 1) * size]]
            for name, tensor in tensors.items()
        }
        for number in range(count)
    ]
