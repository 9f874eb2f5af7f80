"""Which rows of a micro batch are trained on, and how they are cut."""

from __future__ import annotations

from typing import Any

import torch

from grpo.core.train.batch.tensors import counted, whole_mask
from grpo.core.train.update.policy_loss import trained_rows


def inputs(advantages: list[float], lengths: list[int]) -> dict[str, Any]:
    rows, width = len(lengths), 6
    mask = torch.tensor([[1] * n + [0] * (width - n) for n in lengths])
    return {
        "prompt_ids": torch.arange(rows * 4).view(rows, 4),
        "prompt_mask": torch.tensor([[0, 0, 1, 1]] * (rows - 1) + [[1, 1, 1, 1]]),
        "completion_ids": torch.arange(rows * width).view(rows, width),
        "completion_mask": mask,
        "advantages": torch.tensor(advantages),
        "sampling_per_token_logps": torch.zeros(rows, width),
    }


def test_rows_without_advantage_or_tokens_are_left_out_and_padding_is_cut() -> None:
    given = inputs([1.0, 0.0, -0.5, 2.0], [3, 6, 2, 0])
    part = trained_rows(given, every_token=False)
    assert part.kept.tolist() == [0, 2]
    assert part.learns
    assert part.width == 3
    assert torch.equal(part.tensors["completion_ids"], given["completion_ids"][[0, 2], :3])
    assert torch.equal(part.tensors["prompt_ids"], given["prompt_ids"][[0, 2], 2:])
    assert whole_mask(part.tensors).tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]


def test_with_a_kl_term_every_row_with_tokens_is_trained_on() -> None:
    part = trained_rows(inputs([1.0, 0.0, 0.0, 2.0], [3, 6, 2, 0]), every_token=True)
    assert part.kept.tolist() == [0, 1, 2]


def test_one_row_stays_where_nothing_is_to_be_learnt() -> None:
    part = trained_rows(inputs([0.0, 0.0, 0.0], [3, 2, 6]), every_token=False)
    assert part.kept.tolist() == [1]
    assert not part.learns
    masked = trained_rows(inputs([1.0, 1.0], [0, 0]), every_token=True)
    assert masked.kept.tolist() == [0]
    assert not masked.learns
    assert masked.width == 1


def test_tokens_of_an_environment_do_not_count() -> None:
    given = inputs([1.0, 1.0], [4, 2])
    given["tool_mask"] = torch.tensor([[1, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    part = trained_rows(given, every_token=False)
    assert counted(part.tensors).tolist() == [[1, 0, 0, 1], [1, 1, 0, 0]]
    assert whole_mask(part.tensors)[0, -4:].tolist() == [1, 1, 1, 1]
    assert counted(given).sum() == 4
