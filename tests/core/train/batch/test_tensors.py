"""Rollouts as training reads them: where padding stands, which tokens count, and that no row loses what is its own."""

from __future__ import annotations

import torch

from grpo import Completion
from grpo.core.rollout.turns.play import Trajectory
from grpo.core.train.batch.tensors import counted, filled_up, micro_batches, padded, whole_ids, whole_mask

CPU = torch.device("cpu")


def rollout(ids: list[int], sampled: list[bool] | None = None) -> Trajectory:
    chosen = sampled or [True] * len(ids)
    return Trajectory(tuple(ids), tuple(-0.5 * number for number in ids), tuple(chosen), Completion("x"))


def test_prompts_are_padded_on_the_left_and_completions_on_the_right() -> None:
    tensors = padded([[5, 6, 7], [8]], [rollout([1]), rollout([2, 3])], 0, CPU)
    assert whole_ids(tensors).tolist() == [[5, 6, 7, 1, 0], [0, 0, 8, 2, 3]]
    assert whole_mask(tensors).tolist() == [[1, 1, 1, 1, 0], [0, 0, 1, 1, 1]]
    assert tensors["sampling_per_token_logps"].tolist() == [[-0.5, 0.0], [-1.0, -1.5]]


def test_tokens_that_an_environment_put_between_turns_are_seen_and_do_not_count() -> None:
    tensors = padded([[5]], [rollout([1, 2, 3, 4], [True, False, False, True])], 0, CPU)
    assert tensors["completion_mask"].tolist() == [[1, 1, 1, 1]]
    assert counted(tensors).tolist() == [[1, 0, 0, 1]]


def test_a_rollout_without_a_token_is_a_row_in_which_nothing_counts() -> None:
    tensors = padded([[5], [5]], [rollout([]), rollout([])], 0, CPU)
    assert tensors["completion_ids"].shape == (2, 1)
    assert counted(tensors).sum() == 0


def test_micro_batches_hold_every_row_once_and_each_row_keeps_its_own() -> None:
    rows = 12
    tensors = {
        "completion_ids": torch.arange(rows)[:, None],
        "advantages": torch.arange(rows) * 10.0,
        "num_items_in_batch": torch.tensor(7),
    }
    torch.manual_seed(3)
    dealt = micro_batches(tensors, 3, shuffled=True)
    assert [len(part["completion_ids"]) for part in dealt] == [4, 4, 4]
    ids = torch.cat([part["completion_ids"][:, 0] for part in dealt])
    assert sorted(ids.tolist()) == list(range(rows))
    assert ids.tolist() != list(range(rows)), "nothing was shuffled"
    for part in dealt:
        assert torch.equal(part["advantages"], part["completion_ids"][:, 0] * 10.0)
        assert part["num_items_in_batch"] == 7
    torch.manual_seed(3)
    again = torch.cat([part["completion_ids"][:, 0] for part in micro_batches(tensors, 3, shuffled=True)])
    assert torch.equal(again, ids), "the order is not torch's generator's"
    in_order = torch.cat([part["completion_ids"][:, 0] for part in micro_batches(tensors, 3, shuffled=False)])
    assert in_order.tolist() == list(range(rows)), "a group's rows no longer share their prompt"


def test_a_smaller_batch_is_filled_up_with_rows_that_have_no_part_in_the_loss() -> None:
    tensors = padded([[5, 6], [8]], [rollout([1]), rollout([2, 3])], 0, CPU)
    tensors |= {"advantages": torch.tensor([1.0, -1.0]), "num_items_in_batch": torch.tensor(3)}
    filled = filled_up(tensors, 5)
    assert {len(tensor) for tensor in filled.values() if tensor.ndim} == {5}
    for name, tensor in tensors.items():
        assert torch.equal(filled[name][:2] if tensor.ndim else filled[name], tensor)
    assert counted(filled)[2:].sum() == 0
    assert filled["advantages"][2:].tolist() == [0.0, 0.0, 0.0]
    assert filled["prompt_mask"].any(dim=1).all(), "a row with nothing to attend to"
    assert filled_up(tensors, 2) is tensors
