"""Attention to prompts that completions share, against the same with a copy of its prompt for each completion."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from grpo.core.policy.prompt_keys import PromptKeys

SHARED, QUERIES, SIZE, WIDTH = 2, 3, 8, 7  # heads of keys, heads of queries for each, D, P


class Batch:
    """Prompts of these lengths, and completions of `owners` with `after` tokens of their own."""

    def __init__(self, lengths: Sequence[int], owners: Sequence[int], after: int) -> None:
        generator = torch.Generator().manual_seed(0)

        def drawn(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.layers = [
            (drawn(len(lengths), SHARED, WIDTH, SIZE), drawn(len(lengths), SHARED, WIDTH, SIZE)) for _ in "ab"
        ]
        self.counts = (torch.arange(WIDTH) >= WIDTH - torch.tensor(lengths)[:, None]).long()
        self.owners = torch.tensor(owners)
        self.query = drawn(len(owners), SHARED * QUERIES, 1, SIZE)
        self.key, self.value = (drawn(len(owners), SHARED, after, SIZE) for _ in "ab")

    def apart(self) -> PromptKeys:
        return PromptKeys(self.layers, self.counts, self.owners)

    def copied(self, layer: int, rows: torch.Tensor, scaling: float | None = None) -> torch.Tensor:
        """What the completions `rows` attend to, each with its own copy of everything."""
        owners = self.owners[rows]
        keys, values = (
            torch.cat([prompt[owners], own[rows]], dim=2).repeat_interleave(QUERIES, dim=1)
            for prompt, own in zip(self.layers[layer], (self.key, self.value), strict=True)
        )
        seen = torch.cat([self.counts[owners].bool(), torch.ones(len(rows), self.key.shape[2]).bool()], dim=1)
        found = scaled_dot_product_attention(self.query[rows], keys, values, seen[:, None, None], scale=scaling)
        return found.transpose(1, 2)


GROUPS = {
    "one": [0],
    "even": [0, 0, 0, 1, 1, 1],
    "uneven": [0, 1, 1, 1, 1, 2, 2],
    "alone": [0, 1, 2],
}


@pytest.mark.parametrize("scaling", [None, 0.3])
@pytest.mark.parametrize("after", [1, 4])
@pytest.mark.parametrize("owners", GROUPS.values(), ids=GROUPS)
def test_each_completion_sees_its_own_prompt_and_what_came_after_it(
    owners: list[int], after: int, scaling: float | None
) -> None:
    batch = Batch([WIDTH, 3, 5][: max(owners) + 1], owners, after)
    prompts = batch.apart()
    for layer in (0, 1):
        found = prompts.attend(layer, batch.query, batch.key, batch.value, scaling)
        assert found.shape == (len(owners), 1, SHARED * QUERIES, SIZE)
        torch.testing.assert_close(found, batch.copied(layer, torch.arange(len(owners)), scaling))


@pytest.mark.parametrize(
    "keeps",
    [[[0, 2, 3, 4, 5]], [[0, 1, 4], [0, 2]], [[2, 3, 4, 5], [3]], [[5]], [[0, 1, 2, 3, 4, 5]]],
    ids=str,
)
def test_completions_that_ended_leave_and_so_do_the_prompts_that_nobody_needs(keeps: list[list[int]]) -> None:
    batch = Batch([4, WIDTH, 2], [0, 0, 1, 1, 1, 2], 3)
    prompts, rows = batch.apart(), torch.arange(6)
    for keep in keeps:
        rows = rows[keep]
        prompts.select(torch.tensor(keep))
        found = prompts.attend(1, batch.query[rows], batch.key[rows], batch.value[rows], None)
        torch.testing.assert_close(found, batch.copied(1, rows))
    assert len(prompts._counts) == len(prompts._layers[0][0]) == len(batch.owners[rows].unique())


def test_a_head_of_its_own_for_each_query_is_no_special_case() -> None:
    batch = Batch([WIDTH, 3], [0, 0, 1], 2)
    query = batch.query[:, :SHARED]
    found = batch.apart().attend(0, query, batch.key, batch.value, None)
    batch.query = query.repeat_interleave(QUERIES, dim=1)
    torch.testing.assert_close(found, batch.copied(0, torch.arange(3))[:, :, ::QUERIES])
