"""Rollouts that are trees: however a rollout is cut into rows, it is one rollout with one score."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo import Completion, check_loss
from grpo.core.config.schema import parse_config
from grpo.core.config.sections import Correction, LossSection
from grpo.core.planning.objective import bind_objective
from grpo.core.record.run_dir import RunDir
from grpo.core.record.trained import TrainedRow, read_trained
from grpo.core.rollout.turns.play import Branch, PlayedRollout, Trajectory
from grpo.core.train.advantages.compute import group_advantages
from grpo.core.train.advantages.estimators import rloo
from grpo.core.train.batch.tensors import (
    OWNER,
    Tensors,
    counted,
    filled_up,
    micro_batches,
    padded,
    rollouts_in,
    rows_of,
    spread,
    whole_ids,
)
from grpo.core.train.batch.token_record import ROWS, TrainedTokens, numbered
from grpo.core.train.losses import grpo_losses
from grpo.core.train.update.head import attach_logps
from grpo.core.train.update.objective import Counts, Objective, PassLoss, importance_weights, refuse_trees, takes_rows
from grpo.core.train.update.policy_loss import PolicyLoss, trained_rows
from grpo.plugins._spec.binding import BoundAdvantage, BoundLoss
from grpo.plugins.errors import UsageError
from grpo.plugins.host import Host
from grpo.plugins.specs import LossSpec
from grpo.plugins.training import Average, LossTokens
from grpo.plugins.training_decorators import loss

CPU = torch.device("cpu")
LOSSES = {spec.name: spec for spec in grpo_losses()}
OPTIONS: dict[str, dict[str, Any]] = {"cispo": {"epsilon_high": 5.0}}


def tree(*rows: tuple[Sequence[int], Sequence[int], Sequence[bool]]) -> Trajectory:
    """A rollout whose rows have a prompt, tokens, and say which of these were sampled."""
    branches = tuple(
        Branch(tuple(prompt), tuple(ids), tuple(-0.1 * token for token in ids), tuple(sampled))
        for prompt, ids, sampled in rows
    )
    ids, logprobs, sampled = (
        tuple(itertools.chain.from_iterable(getattr(one, name) for one in branches))
        for name in ("token_ids", "logprobs", "sampled")
    )
    chosen = tuple(itertools.compress(ids, sampled))
    return Trajectory(ids, logprobs, sampled, Completion("x", token_ids=chosen), branches=branches)


def chain(ids: Sequence[int]) -> Trajectory:
    return Trajectory(tuple(ids), tuple(-0.1 * token for token in ids), (True,) * len(ids), Completion("x"))


def some_trees() -> tuple[list[list[int]], list[Trajectory]]:
    first = tree(([5, 6], [1, 2, 3], [True, False, True]), ([5, 6, 1, 9], [4, 7, 8, 9], [True] * 4), ([5], [2], [True]))
    return [[5, 6], [5, 6], [8], [8]], [first, chain([2, 3]), chain([4]), tree(([8, 4], [6], [True]))]


def test_each_branch_is_a_row_after_its_own_prompt_and_rows_know_their_rollout() -> None:
    prompts, rollouts = some_trees()
    tensors = padded(prompts, rollouts, 0, CPU)
    assert tensors[OWNER].tolist() == [0, 0, 0, 1, 2, 3]
    assert rollouts_in(tensors) == 4
    present = whole_ids(tensors)[1][whole_ids(tensors)[1] != 0]
    assert present.tolist() == [5, 6, 1, 9, 4, 7, 8, 9]
    assert counted(tensors).sum(dim=1).tolist() == [2, 4, 1, 2, 1, 1]
    chosen = tensors["completion_ids"][counted(tensors) > 0]
    assert chosen.tolist() == [1, 3, 4, 7, 8, 9, 2, 2, 3, 4, 6], "each sampled token once, in order of rows"
    assert spread(torch.tensor([1.0, 2.0, 3.0, 4.0]), tensors).tolist() == [1.0, 1.0, 1.0, 2.0, 3.0, 4.0]


def test_a_batch_without_trees_is_laid_out_as_ever() -> None:
    tensors = padded([[5], [6]], [chain([1]), chain([2])], 0, CPU)
    assert OWNER not in tensors
    assert tensors["completion_ids"].shape == (2, 1)
    values = torch.ones(2)
    assert spread(values, tensors) is values


def with_advantages(values: list[float]) -> Tensors:
    tensors = padded(*some_trees(), 0, CPU)
    return {**tensors, "advantages": spread(torch.tensor(values), tensors), "num_items_in_batch": torch.tensor(11)}


@pytest.mark.parametrize("shuffled", [False, True])
def test_micro_batches_hold_whole_rollouts_and_as_many_each(shuffled: bool) -> None:
    torch.manual_seed(1)
    dealt = micro_batches(filled_up(with_advantages([1.0, 2.0, 3.0, 4.0]), 6), 3, shuffled=shuffled)
    assert [rollouts_in(part) for part in dealt] == [2, 2, 2]
    owners = [part[OWNER].tolist() for part in dealt]
    assert sorted(itertools.chain(*owners)) == [0, 0, 0, 1, 2, 3, 4, 5]
    assert (owners == [[0, 0, 0, 1], [2, 3], [4, 5]]) != shuffled
    for part in dealt:
        assert part["advantages"].tolist() == [one + 1.0 if one < 4 else 0.0 for one in part[OWNER].tolist()]
        assert [one.tolist() for one in part[OWNER].unique_consecutive()] == list(dict.fromkeys(part[OWNER].tolist()))
        filled = part[OWNER] >= 4
        assert counted(part)[filled].sum() == 0


def test_passes_without_a_gradient_are_as_many_on_processes_whose_rows_differ_in_number() -> None:
    tensors = padded(*some_trees(), 0, CPU)
    assert rows_of(tensors, 3) == [slice(0, 5), slice(5, 6)]
    plain = padded([[5]] * 4, [chain([1])] * 4, 0, CPU)
    assert len(rows_of(plain, 3)) == 2


def test_rows_of_a_rollout_without_advantage_are_left_out_and_the_others_keep_their_owner() -> None:
    part = trained_rows(with_advantages([0.5, 0.0, 0.0, -1.0]), every_token=False)
    assert (part.kept.tolist(), part.tensors[OWNER].tolist()) == ([0, 1, 2, 5], [0, 0, 0, 3])
    one = {name: values[:3] for name, values in with_advantages([0.0] * 4).items() if values.ndim}
    whole = trained_rows(one, every_token=False)
    assert (whole.kept.tolist(), whole.learns) == ([0, 1, 2], False), "some of a rollout's tokens would be on record"
    few = trained_rows(with_advantages([0.0, 0.0, 0.0, -1.0]), every_token=False)
    assert few.width == 2, "a column for a whole rollout would look like one for a token"


def test_what_tokens_were_trained_with_is_on_record_in_the_order_of_the_completion() -> None:
    tensors = numbered(with_advantages([0.5, 0.0, 0.0, -1.0]))
    assert tensors[ROWS].tolist() == tensors[OWNER].tolist()
    part, record = trained_rows(tensors, every_token=False), TrainedTokens()
    sampled = part.tensors["sampling_per_token_logps"]
    policy = sampled + 0.01 * part.tensors["completion_ids"]
    record.add(tensors[ROWS][part.kept], policy, sampled, counted(part.tensors), part.tensors["advantages"])
    first, last = record.take()
    assert (first.row, last.row) == (0, 3)
    completion = some_trees()[1][0].completion
    assert first.log_ratios == pytest.approx([0.01 * token for token in completion.token_ids], abs=1e-4)
    assert list(first.advantages) == [0.5] * len(completion.token_ids)
    assert list(last.advantages) == [-1.0]


@dataclass(frozen=True)
class Cut:
    """Completions of some tokens in rows of these lengths, by completion."""

    rows: tuple[tuple[int, ...], ...]

    def laid(self, values: torch.Tensor) -> torch.Tensor:
        """[R, T] of values of all tokens, one after the other; 0 where there is none."""
        lengths = [length for one in self.rows for length in one]
        parts = values.split(lengths)
        return torch.stack([torch.nn.functional.pad(one, (0, max(2, *lengths) - len(one))) for one in parts])

    @property
    def owner(self) -> torch.Tensor:
        return torch.tensor([number for number, one in enumerate(self.rows) for _ in one])


WHOLE, IN_ROWS = Cut(((7,), (4,), (3,))), Cut(((1, 4, 2), (4,), (1, 1, 1)))


def cut_loss(cut: Cut, spec: LossSpec, correction: Correction, beta: float) -> tuple[float, torch.Tensor, torch.Tensor]:
    """The loss of made-up completions, its gradient by each token and the weights of the correction."""
    generator = torch.Generator().manual_seed(0)
    logps, old, ref, engine, entropies = (
        -torch.rand(14, generator=generator, dtype=torch.float64) - 0.2 for _ in range(5)
    )
    leaf = logps.requires_grad_()
    mask = cut.laid(torch.ones(14, dtype=torch.float64))
    found, importance = PassLoss(
        Objective(BoundLoss(spec, "", OPTIONS.get(spec.name, {})), beta=beta),
        Counts(3, mask.sum(), mask.sum(), longest=9, accumulation=2),
        mask=mask,
        advantages=torch.tensor([1.0, -0.5, 0.7], dtype=torch.float64)[cut.owner],
        old_logps=cut.laid(old),
        ref_logps=cut.laid(ref) if beta else None,
        sampled=cut.laid(engine),
        correction=correction,
        cap=1.2,
        floor=0.7,
        owner=cut.owner,
    )(cut.laid(leaf), cut.laid(-entropies) if spec.entropies != "none" else None)
    weights = torch.ones(1) if importance is None else importance.expand_as(mask)[mask > 0]
    return found.loss.item(), torch.autograd.grad(found.loss, leaf)[0], weights


CORRECTIONS: tuple[Correction, ...] = ("none", "token_mask", "sequence_truncate", "sequence_mask", "geometric_mask")


@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("spec", LOSSES.values(), ids=LOSSES)
def test_a_completion_that_is_cut_into_rows_trains_as_it_did(spec: LossSpec, correction: Correction) -> None:
    for beta in (0.0, 0.1):
        whole, cut = (cut_loss(one, spec, correction, beta) for one in (WHOLE, IN_ROWS))
        assert cut[0] == pytest.approx(whole[0], rel=1e-12)
        torch.testing.assert_close(cut[1], whole[1], rtol=1e-10, atol=1e-14)
        torch.testing.assert_close(cut[2], whole[2], rtol=1e-12, atol=0)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("average", ["completion", "sum", "constant", "batch", "micro_batch"])
def test_averages_count_rollouts_and_not_rows(average: Average, level: str) -> None:
    @loss(version=1, average=average, name="mine")
    def mine(tokens: LossTokens) -> torch.Tensor:
        return -tokens.advantages * (tokens.ratio() if level == "token" else tokens.sequence_ratio())

    whole, cut = (cut_loss(one, mine, "none", 0.0) for one in (WHOLE, IN_ROWS))
    assert cut[0] == pytest.approx(whole[0], rel=1e-12)
    torch.testing.assert_close(cut[1], whole[1], rtol=1e-10, atol=1e-14)


def test_the_weight_of_a_completion_is_that_of_all_of_its_rows() -> None:
    policy, engine = torch.tensor([[0.1, 0.2], [0.3, 5.0], [0.4, 0.0]]), torch.zeros(3, 2)
    mask, owner = torch.tensor([[1, 1], [1, 0], [1, 0]]), torch.tensor([4, 4, 7])
    found = importance_weights(policy, engine, mask, "sequence_truncate", 9.0, owner=owner)
    assert found is not None
    assert found.log().flatten().tolist() == pytest.approx([0.6, 0.6, 0.4])
    found = importance_weights(policy, engine, mask, "geometric_truncate", 9.0, owner=owner)
    assert found is not None
    assert found.log().flatten().tolist() == pytest.approx([0.2, 0.2, 0.4])


@loss(version=1, average="batch")
def ratio_of_a_row(tokens: LossTokens) -> torch.Tensor:
    apart = ((tokens.logps - tokens.old_logps) * tokens.mask).sum(dim=1, keepdim=True)
    return -tokens.advantages * (apart / tokens.mask.sum(dim=1, keepdim=True)).exp()


def test_losses_that_sum_over_a_row_by_themselves_are_found_out_and_ours_do_not() -> None:
    assert {
        name for name, spec in LOSSES.items() if not takes_rows(BoundLoss(spec, "", OPTIONS.get(name, {})))
    } == set()
    assert not takes_rows(BoundLoss(ratio_of_a_row, "mine"))
    [finding] = [one for one in check_loss(ratio_of_a_row).findings if one.relation == "rows of a completion"]
    assert finding.severity == "note"
    assert "sequence_sum" in finding.message


@pytest.mark.parametrize(
    ("settings", "own_head", "problem"),
    [
        ({"loss": {"advantage": "return_to_go"}}, True, "--advantage return_to_go has one advantage per turn"),
        ({"rollout": {"partial": 64}}, True, "Leave --partial out"),
        ({}, False, r"Leave train\.head='trl' out"),
    ],
)
def test_what_looks_at_rows_or_turns_refuses_trees(settings: dict[str, Any], own_head: bool, problem: str) -> None:
    config = parse_config({"env": "guess", **settings})
    bound = bind_objective(config, Host.discover())
    with pytest.raises(UsageError, match=problem):
        refuse_trees(*bound, own_head=own_head, partial=bool(config.rollout.partial))
    loss, advantage = bind_objective(parse_config({"env": "guess"}), Host.discover())
    refuse_trees(loss, advantage, own_head=True, partial=False)
    with pytest.raises(UsageError, match=r"--loss ratio_of_a_row .* use sequence_sum"):
        refuse_trees(BoundLoss(ratio_of_a_row, "mine"), advantage, own_head=True, partial=False)


# A policy that decides how many rows its rollout has. Its first token, after the prompt [3], is 0 (it stops) or 1 (it
# asks a helper, whose row has the prompt [4] and a token of 0 or 1). The helper's answer is in the first row then, as
# an observation, and a second token is sampled after it. A table has the log-odds of a 1 after each token.
START, HELPER, AFTER_0, AFTER_1 = range(4)
TABLE = torch.tensor([0.3, -0.8, 0.5, 1.1], dtype=torch.float64)
PLACES = {3: START, 4: HELPER, 0: AFTER_0, 1: AFTER_1}


def policy(table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """[R, L - 1] log-probabilities of tokens 0 and 1 after the token before each of them; whatever for others."""
    odds = table[torch.tensor([[PLACES[token] for token in row] for row in ids[:, :-1].tolist()])]
    signs = 2.0 * (ids[:, 1:] == 1) - 1
    return torch.nn.functional.logsigmoid(signs * odds)


@dataclass(frozen=True)
class Outcome:
    """A rollout that the policy may sample, its score, and the sampled tokens with where the table has them."""

    rollout: Trajectory
    score: float
    drawn: tuple[tuple[int, int], ...]

    def probability(self, table: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.sigmoid(table[place] * (1 if token else -1)) for place, token in self.drawn]).prod()


def every_outcome() -> Iterator[Outcome]:
    yield Outcome(tree(([3], [0], [True])), 0.0, ((START, 0),))
    for helped, then in itertools.product((0, 1), repeat=2):
        rollout = tree(([3], [1, helped, then], [True, False, True]), ([4], [helped], [True]))
        drawn = ((START, 1), (AFTER_1 if helped else AFTER_0, then), (HELPER, helped))
        yield Outcome(rollout, 0.2 + 0.9 * helped - 0.3 * then + 0.6 * helped * then, drawn)


GROUP = 2
Way = Callable[[Sequence[Outcome], Tensors], tuple[torch.Tensor, torch.Tensor | None, int]]


def rloo_of(scores: Sequence[float]) -> torch.Tensor:
    column, none = torch.tensor(scores, dtype=torch.float64)[:, None], torch.zeros(len(scores), dtype=torch.bool)
    weight = torch.ones(1, dtype=torch.float64)
    return group_advantages(column, none, weight, len(scores), BoundAdvantage(rloo, "")).values.double()


def ours(group: Sequence[Outcome], tensors: Tensors) -> tuple[torch.Tensor, torch.Tensor | None, int]:
    return spread(rloo_of([one.score for one in group]), tensors), tensors[OWNER], rollouts_in(tensors)


def every_row_a_rollout(group: Sequence[Outcome], tensors: Tensors) -> tuple[torch.Tensor, torch.Tensor | None, int]:
    """Each row has its rollout's score and is compared with all other rows of the group."""
    scores = [group[number].score for number in tensors[OWNER].tolist()]
    return rloo_of(scores), None, len(scores)


def rows_of_a_rollout_beside_each_other(
    group: Sequence[Outcome], tensors: Tensors
) -> tuple[torch.Tensor, torch.Tensor | None, int]:
    """Advantages over rollouts, and a mean over rows."""
    return spread(rloo_of([one.score for one in group]), tensors), None, len(tensors[OWNER])


@cache
def expected_gradient(way: Way, spec: LossSpec) -> torch.Tensor:
    """Over every group that the policy can sample, of the loss of what training makes of it."""
    table = TABLE.clone().requires_grad_()
    expected = torch.zeros_like(TABLE)
    for group in itertools.product(list(every_outcome()), repeat=GROUP):
        tensors = padded([[3]] * GROUP, [one.rollout for one in group], 0, CPU)
        advantages, owner, rows = way(group, tensors)
        mask = counted(tensors)
        loss = PassLoss(
            Objective(BoundLoss(spec, "")),
            Counts(rows, mask.sum(), mask.sum(), longest=4, accumulation=1),
            mask=mask,
            advantages=advantages,
            old_logps=None,
            ref_logps=None,
            sampled=tensors["sampling_per_token_logps"],
            correction="none",
            cap=2.0,
            owner=owner,
        )
        logps = policy(table, whole_ids(tensors))[:, -mask.shape[1] :]
        gradient = torch.autograd.grad(loss(logps)[0].loss, table)[0]
        expected += math.prod(one.probability(TABLE).item() for one in group) * gradient
    return expected


def of_the_mean_total() -> torch.Tensor:
    table = TABLE.clone().requires_grad_()
    total = torch.stack([one.probability(table) * one.score for one in every_outcome()]).sum()
    return torch.autograd.grad(total, table)[0]


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """The sine of the angle between two directions, 1 and above where they disagree."""
    cosine = float(torch.nn.functional.cosine_similarity(one, other, dim=0))
    return math.sqrt(max(1 - cosine**2, 0.0)) if cosine > 0 else 1.0


@loss(version=1, average="sum")
def summed(tokens: LossTokens) -> torch.Tensor:
    return -tokens.ratio() * tokens.advantages


@loss(version=1, average="constant")
def by_a_constant(tokens: LossTokens) -> torch.Tensor:
    return -tokens.ratio() * tokens.advantages


def test_where_the_policy_decides_how_many_rows_there_are_the_gradient_is_that_of_the_mean_total_exactly() -> None:
    assert sum(one.probability(TABLE).item() for one in every_outcome()) == pytest.approx(1.0)
    exact = of_the_mean_total()
    torch.testing.assert_close(-expected_gradient(ours, summed), exact, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(-4 * expected_gradient(ours, by_a_constant), exact, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("usual", [every_row_a_rollout, rows_of_a_rollout_beside_each_other])
def test_the_usual_ways_of_training_rows_are_biased_there(usual: Way) -> None:
    """Not by a factor: they point elsewhere, so that no learning rate makes up for it."""
    assert apart(-expected_gradient(ours, summed), of_the_mean_total()) < 1e-6
    assert apart(-expected_gradient(usual, summed), of_the_mean_total()) > 0.02


def test_a_token_that_trains_in_one_row_has_no_gradient_from_another_that_has_it_in_its_prompt() -> None:
    rollout = tree(([3], [1], [True]), ([3, 1], [0], [True]))
    tensors = padded([[3]], [rollout], 0, CPU)
    table = TABLE.clone().requires_grad_()
    logps = policy(table, whole_ids(tensors))[:, -2:].masked_fill(counted(tensors) == 0, 0.0)
    first, second = (torch.autograd.grad(logps[row].sum(), table, retain_graph=True)[0] for row in (0, 1))
    assert first.nonzero().flatten().tolist() == [START]
    assert second.nonzero().flatten().tolist() == [AFTER_1]


def in_turns(rollout: Trajectory, prompt: Sequence[int]) -> Trajectory:
    """The same rollout with a row for each turn, whose prompt is all that was before it."""
    tokens = list(zip(rollout.token_ids, rollout.logprobs, rollout.sampled, strict=True))
    rows, at = [], 0
    for sampled, run in itertools.groupby(tokens, key=lambda token: token[2]):
        ids, logprobs, _ = zip(*run, strict=True)
        if sampled:
            rows.append(Branch((*prompt, *rollout.token_ids[:at]), ids, logprobs, (True,) * len(ids)))
        at += len(ids)
    chosen = [token for token in tokens if token[2]]
    if not chosen:
        return rollout
    ids, logprobs, drawn = zip(*chosen, strict=True)
    return replace(rollout, token_ids=ids, logprobs=logprobs, sampled=drawn, branches=tuple(rows))


@pytest.mark.parametrize("name", ["grpo", "luspo", "dr_grpo", "gspo", "dapo"])
def test_the_loss_and_its_gradient_are_those_of_the_chain_in_all_passes_and_micro_batches(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    prompts, chains = [], []
    for number in range(4):
        lengths = [3, 2, 4, 2, 1][: 1 + 2 * (number % 3)]
        ids = torch.randint(3, 90, (sum(lengths),), generator=generator).tolist()
        sampled = tuple(turn % 2 == 0 for turn, length in enumerate(lengths) for _ in range(length))
        prompts.append([7, 8, 9, 10 + number // 2])
        logprobs = tuple(-4.5 if one else 0.0 for one in sampled)
        chains.append(Trajectory(tuple(ids), logprobs, sampled, Completion("x")))
    model = small_model()
    settings = LossSection(num_iterations=2)
    found = []
    for rollouts in (chains, [in_turns(*both) for both in zip(chains, prompts, strict=True)]):
        tensors = padded(prompts, rollouts, 0, CPU)
        tensors["advantages"] = spread(torch.tensor([1.0, -0.5, 0.25, -0.75]), tensors)
        tensors["num_items_in_batch"] = counted(tensors).sum()
        policy_loss = PolicyLoss(
            BoundLoss(LOSSES[name], ""),
            settings,
            "sequence_truncate",
            longest=8,
            accumulation=2,
            processes=1,
            pack_for=model.config.hidden_size,
            autocast=nullcontext,
        )
        model.zero_grad()
        parts = micro_batches(tensors, 2, shuffled=False)
        for first_pass in (True, False):
            for part in parts:
                policy_loss(model, part, first_pass=first_pass).loss.backward()
        found.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    for whole, cut in zip(*found, strict=True):
        torch.testing.assert_close(cut, whole, rtol=1e-4, atol=1e-5)


def small_model() -> Any:
    from transformers import AutoModelForCausalLM, Qwen2Config

    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.2,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    attach_logps(model, 1.0)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(
            {"loss": {"type": "grpo", "beta": 0.1, "num_iterations": 2}, "steps": 4}, marks=pytest.mark.nightly
        ),
        {"loss": {"type": "gspo", "num_iterations": 2}, "steps": 4, "lora": {"enabled": True, "rank": 4}},
        pytest.param({"loss": {"type": "bnpo"}, "rollout": {"refill": 1}}, marks=pytest.mark.nightly),
    ],
    ids=str,
)
def test_a_run_whose_turns_are_rows_trains_the_same_policy_and_writes_the_same_down(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import load_file

    from grpo import train
    from grpo.core.train import trl_arguments

    def plain_descent(*arguments: Any) -> dict[str, Any]:
        return {**trl_arguments.grpo_arguments(*arguments), "optim": "sgd"}

    def run(name: str) -> tuple[dict[str, torch.Tensor], list[TrainedRow], list[dict[str, Any]]]:
        made = train(
            env="guess",
            prompts_per_step=4,
            group_size=4,
            micro_batch_size=4,
            lr=0.1,
            max_completion_length=8,
            evaluation={"size": 0},
            out=tmp_path / name,
            **{"steps": 2, **settings},
        )
        folder = RunDir(made.path)
        file = next(one for one in (made.path / "model").glob("*.safetensors"))
        metrics = [json.loads(line) for line in (made.path / "metrics.jsonl").read_text().splitlines()]
        record = [one for one in read_trained(folder, 1).values() if any(one.advantages)]
        return load_file(file), record, metrics

    monkeypatch.setattr("grpo.core.train.trainer.grpo_arguments", plain_descent)
    weights, record, _ = run("chains")
    trajectory = PlayedRollout.trajectory
    monkeypatch.setattr(PlayedRollout, "trajectory", lambda self, end: in_turns(trajectory(self, end), self.prompt))
    cut_weights, cut_record, metrics = run("trees")
    assert metrics[0]["rows/most"] > 1
    assert record == cut_record
    for name, weight in weights.items():
        torch.testing.assert_close(cut_weights[name], weight, rtol=1e-4, atol=1e-6)
