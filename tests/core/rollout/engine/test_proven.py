"""Rollouts of the real vLLM: they agree with the policy, every sync is proven, and every planted fault is caught.

Each fault is planted where it happens in the field, between what is handed over and what the engine computes with.
Adapters are in test_rollout_adapter.py.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_bench import (
    PARAMS,
    REAL_VLLM,
    TOLERANCE,
    Faulty,
    base_model,
    engine_for,
    gap,
    move,
    prompts_of,
    rollouts_of,
    sync_with,
)

from grpo.core.rollout.hf.sampler import sample
from grpo.core.rollout.sync.payload import fingerprints
from grpo.core.rollout.types import SamplingParams
from grpo.plugins.errors import RunError, UsageError

pytestmark = REAL_VLLM


@pytest.fixture(scope="module")
def link(tied_model: Path) -> Iterator[Any]:
    """An engine without adapters."""
    engine = engine_for(tied_model, lora=False)
    yield engine
    engine.close()


@pytest.fixture
def full(link: Any, tied_model: Path) -> tuple[Any, Any]:
    """The engine, and the policy."""
    return link, base_model(tied_model)


def test_tokens_and_log_probabilities_are_those_of_the_policy(full: tuple[Any, Any]) -> None:
    link, model = full
    rollouts = rollouts_of(link)
    prompts = prompts_of([1, 7, 40, 130, 300], copies=4)
    for _ in range(2):
        metrics = rollouts.sync(model)
        told: list[tuple[list[int], list[Any]]] = []
        sampled = rollouts.generate(prompts, PARAMS, lambda numbers, done, told=told: told.append((numbers, done)))
        assert len(told) == 5, "one request for each prompt"
        assert dict(pair for numbers, done in told for pair in zip(numbers, done, strict=True)) == dict(
            enumerate(sampled)
        )
        assert metrics["sync/spot_difference"] < TOLERANCE
        each = sum(4 * p.numel() for p in model.parameters())  # a tied head counts once
        assert metrics["sync/bytes"] in (each, 2 * each), "the self-test hands everything over, too"
        assert metrics["sync/share"] == 1.0
        assert gap(model, prompts, sampled) < TOLERANCE
        move(model, 0.02)
    assert [len(s.token_ids) <= 24 for s in sampled] == [True] * 20
    assert {s.finish_reason for s in sampled} <= {"stop", "length"}
    assert all((s.token_ids[-1] == 2) == (s.finish_reason == "stop") for s in sampled)
    groups = [{s.token_ids for s in sampled[first : first + 4]} for first in range(0, 20, 4)]
    assert all(len(group) > 1 for group in groups), "the members of a group are alike"


def test_greedy_completions_equal_those_of_transformers(full: tuple[Any, Any]) -> None:
    link, model = full
    greedy = SamplingParams(max_tokens=16, eos_ids=(2,), pad_id=0, temperature=0.0)
    rollouts = rollouts_of(link)
    rollouts.sync(model)
    prompts = prompts_of([5, 60, 200], copies=2)  # vLLM itself takes no greedy request for several samples
    assert [s.token_ids for s in rollouts.generate(prompts, greedy)] == [
        s.token_ids for s in sample(model, prompts, greedy)
    ]


def test_rollouts_of_several_turns_are_those_of_the_policy_in_their_context(
    full: tuple[Any, Any], tied_model: Path
) -> None:
    from grpo.core.config.sections import RolloutSection
    from grpo.core.config.settings import RolloutSettings, settle
    from grpo.core.env.episodes import episodes_of
    from grpo.core.env.prompts import encode_episodes
    from grpo.core.planning.turns import decide_turns
    from grpo.core.policy.load import load_tokenizer
    from grpo.core.rollout.players import player_of
    from grpo.plugins.host import Host

    link, model = full
    rollouts = rollouts_of(link)
    rollouts.sync(model)
    env = Host.discover().env("guess")
    tokenizer = load_tokenizer(str(tied_model))
    episodes = [one for one in episodes_of(env, "train", limit=2, unbounded=2) for _ in range(4)]
    prompts = encode_episodes(tokenizer, episodes)
    wished, turn = RolloutSection(max_turns=3), 8
    turns = decide_turns(wished, [env], turn, 512 - max(map(len, prompts)))
    limits = settle(RolloutSettings, wished, max_completion_length=turn, **asdict(turns))
    player = player_of(env, limits, tokenizer, episodes)
    assert player is not None
    ended: list[int] = []
    played = player.play(
        episodes,
        prompts,
        rollouts.generate,
        SamplingParams(max_tokens=8, eos_ids=(2,), pad_id=0),
        on_ended=lambda number, completion: ended.append(number),
    )
    assert sorted(ended) == list(range(8))
    assert max(one.completion.turns for one in played) == 3
    for prompt, one in zip(prompts, played, strict=True):
        ids = torch.tensor([[*prompt, *one.token_ids]])
        with torch.no_grad():
            logprobs = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        mine = logprobs.gather(-1, ids[0, len(prompt) :, None])[:, 0]
        chosen = torch.tensor(one.sampled)
        assert (mine - torch.tensor(one.logprobs))[chosen].abs().max() < TOLERANCE
        assert all(one.sampled) == (one.completion.turns == 1), "an observation stands between turns"


def test_the_generator_of_torch_decides_and_its_own_numbers_stay(full: tuple[Any, Any]) -> None:
    link, model = full
    rollouts = rollouts_of(link)
    rollouts.sync(model)
    found = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        found.append(([s.token_ids for s in rollouts.generate(prompts_of([9, 50], 3), PARAMS)], float(torch.rand(()))))
    assert found[0] == found[2]
    assert found[0][0] != found[1][0]
    torch.manual_seed(1)
    rollouts.sync(model)
    after = float(torch.rand(()))
    torch.manual_seed(1)
    assert float(torch.rand(())) == after, "a sync drew random numbers of training"


def test_a_prompt_that_does_not_fit_is_refused_and_never_cut(full: tuple[Any, Any]) -> None:
    link, model = full
    rollouts = rollouts_of(link)
    rollouts.sync(model)
    (fits,) = rollouts.generate(prompts_of([512 - 24]), SamplingParams(max_tokens=24, eos_ids=(), pad_id=0))
    assert len(fits.token_ids) == 24
    for length in (512 - 23, 600):
        with pytest.raises(UsageError, match=f"a prompt of {length} tokens and 24 new ones do not fit"):
            rollouts.generate(prompts_of([length]), PARAMS)
    with pytest.raises(UsageError, match="an empty prompt"):
        rollouts.generate([[]], PARAMS)


def test_what_users_copy_and_pickle_holds_no_engine(full: tuple[Any, Any]) -> None:
    link, model = full
    rollouts = rollouts_of(link)
    rollouts.sync(model)
    copied = copy.deepcopy(model)
    loaded = pickle.loads(pickle.dumps(model))
    for other in (copied, loaded):
        assert all(torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters(), strict=True))
    move(model, 0.02)
    assert rollouts.differing(model), "the engine has the weights of before"
    assert rollouts.differing(copied) == []


def test_weights_swapped_without_a_step_are_noticed(full: tuple[Any, Any]) -> None:
    link, model = full
    rollouts = rollouts_of(link)
    rollouts.sync(model)
    other = copy.deepcopy(model)
    move(other, 0.02)
    model.load_state_dict(other.state_dict())
    rollouts.sync(model)
    prompts = prompts_of([30, 200])
    assert gap(model, prompts, rollouts.generate(prompts, PARAMS)) < TOLERANCE


@pytest.mark.parametrize("size", [0.02, 1e-6], ids=["large step", "learning rate 1e-6"])
def test_one_stale_layer_stops_the_run_by_name(full: tuple[Any, Any], size: float) -> None:
    link, model = full
    stale = "model.layers.1.mlp.down_proj.weight"
    kept = dict(model.named_parameters())[stale].detach().clone()

    def put(weights: Any) -> None:
        link.put_weights((name, kept if name == stale else tensor) for name, tensor in weights)

    with pytest.raises(RunError, match=rf"neither after a second full sync.*{stale}"):
        sync_with(rollouts_of(link), link, model, size, put_weights=put)


def test_a_stale_head_of_tied_embeddings_stops_the_run_by_name(full: tuple[Any, Any]) -> None:
    link, model = full

    def put(weights: Any) -> None:
        link.put_weights((name, tensor) for name, tensor in weights if name != "lm_head.weight")

    with pytest.raises(RunError, match=r"second full sync.*lm_head\.weight"):
        sync_with(rollouts_of(link), link, model, 0.02, put_weights=put)


def test_a_sync_that_broke_off_stops_the_run_and_the_next_one_is_whole(full: tuple[Any, Any]) -> None:
    link, model = full

    def half(weights: Any) -> Iterator[Any]:
        for number, pair in enumerate(weights):
            if number == 9:
                raise ConnectionError("the line went dead")
            yield pair

    rollouts = rollouts_of(link)
    with pytest.raises(RunError, match=r"handing the weights over ended in ConnectionError: the line went dead"):
        sync_with(rollouts, link, model, 0.02, put_weights=lambda weights: link.put_weights(half(weights)))
    rollouts.sync(model)
    prompts = prompts_of([30, 200])
    assert gap(model, prompts, rollouts.generate(prompts, PARAMS)) < TOLERANCE


def test_a_sync_that_fails_once_is_repeated_and_the_run_goes_on(full: tuple[Any, Any]) -> None:
    link, model = full
    calls = []

    def put(weights: Any) -> None:
        calls.append(1)
        link.put_weights((n, t) for n, t in weights if len(calls) > 1 or n != "model.norm.weight")

    rollouts = rollouts_of(link)
    rollouts.sync(model)
    move(model, 0.02)
    rollouts.engines[0].link = Faulty(link, put_weights=put)
    assert rollouts.sync(model)["sync/repeated"] == 1.0
    assert len(calls) == 3  # the failed one, the self-test's, the good one


def test_keys_and_values_of_earlier_weights_stop_the_run(full: tuple[Any, Any]) -> None:
    link, model = full
    with pytest.raises(RunError, match=r"log-probabilities of a fixed prompt differ|a test change of the weights"):
        sync_with(rollouts_of(link), link, model, 0.05, reset_prefix_cache=lambda: None)


@pytest.mark.parametrize("tolerance", [TOLERANCE, 10.0], ids=["tight", "more-than-the-change-moves"])
def test_weights_that_never_arrive_are_caught_before_the_first_step(full: tuple[Any, Any], tolerance: float) -> None:
    """Fingerprints of what was sent instead of what is served would let this pass; the self-test does not."""
    link, model = full
    rollouts_of(link, tolerance=tolerance).sync(model)
    sent: dict[str, torch.Tensor] = {}
    faulty = Faulty(link, put_weights=sent.update, fingerprints=lambda seed: fingerprints(sent, seed))
    rollouts = rollouts_of(faulty, tolerance=tolerance)
    with pytest.raises(RunError, match="a test change of the weights should leave the engine within"):
        rollouts.sync(model)
