"""Rollouts of the real vLLM: they agree with the policy, every sync is proven, and every planted fault is caught.

Each fault is planted where it happens in the field, between what is handed over and what the engine computes with.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo.core.rollout import SamplingParams
from grpo.core.rollout_hf import sample
from grpo.core.sync import fingerprints
from grpo.plugins.errors import RunError, UsageError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("vllm_installed"),
]

PARAMS = SamplingParams(max_tokens=24, eos_ids=(2,), pad_id=0)
TOLERANCE = 2e-4
RANK = 4


def base_model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def with_adapter(folder: Path, **settings: Any) -> Any:
    from peft import LoraConfig, get_peft_model

    settings = {"r": RANK, "lora_alpha": 8, **settings}
    model = get_peft_model(
        base_model(folder), LoraConfig(target_modules="all-linear", task_type="CAUSAL_LM", **settings)
    )
    move(model, 0.05)
    return model


def move(model: Any, size: float) -> None:
    """Changes what trains, as an optimizer step would."""
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(size * torch.randn(parameter.shape, generator=generator))


def engine_for(folder: Path, *, lora: bool) -> Any:
    from grpo.core.rollout_vllm import EngineSettings, VllmEngine

    modules = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    return VllmEngine(
        EngineSettings(
            model=str(folder),
            dtype="float32",
            context=512,
            raw_logprobs=True,
            memory_share=0.3,
            lora_rank=RANK if lora else None,
            lora_modules=modules if lora else (),
        )
    )


def rollouts_of(link: Any, lora_sync: Any = "adapter") -> Any:
    from grpo.core.rollout_engine import EngineRollouts

    return EngineRollouts(link, tolerance=TOLERANCE, lora_sync=lora_sync)


@pytest.fixture(scope="module")
def tied_model(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny policy with its head tied to the embedding, as most small models have it."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    model.config.tie_word_embeddings = True
    model.tie_weights()
    folder = tmp_path_factory.mktemp("tied") / "model"
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def links(tied_model: Path) -> Iterator[Callable[[bool], Any]]:
    """Gives one engine, with adapters or without; asking for the other kind stops it."""
    running: dict[bool, Any] = {}

    def link(lora: bool) -> Any:
        if lora not in running:
            for other in list(running):
                running.pop(other).close()
            running[lora] = engine_for(tied_model, lora=lora)
        return running[lora]

    yield link
    for engine in running.values():
        engine.close()


@pytest.fixture
def full(links: Callable[[bool], Any], tied_model: Path) -> tuple[Any, Any]:
    """An engine without adapters, and the policy."""
    return links(False), base_model(tied_model)


@pytest.fixture
def lora(links: Callable[[bool], Any], tied_model: Path) -> tuple[Any, Any]:
    """An engine with adapters, and a policy with one that is no longer fresh."""
    return links(True), with_adapter(tied_model)


def gap(model: Any, prompts: list[list[int]], sampled: list[Any]) -> float:
    """Returns the largest difference of the engine's log-probabilities from an unpadded forward pass of the policy."""
    found = 0.0
    for prompt, one in zip(prompts, sampled, strict=True):
        ids = torch.tensor([prompt + list(one.token_ids)])
        with torch.no_grad():
            logprobs = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        mine = logprobs.gather(-1, ids[0, len(prompt) :, None])[:, 0]
        found = max(found, float((mine - torch.tensor(one.logprobs)).abs().max()))
    return found


def prompts_of(lengths: list[int], copies: int = 1) -> list[list[int]]:
    generator = torch.Generator().manual_seed(5)
    drawn = [torch.randint(3, 400, (length,), generator=generator).tolist() for length in lengths]
    return [prompt for prompt in drawn for _ in range(copies)]


class Faulty:
    """An engine link with one fault."""

    def __init__(self, link: Any, **faults: Any) -> None:
        self._link = link
        for name, fault in faults.items():
            setattr(self, name, fault)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)


# Without adapters.


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
        assert metrics["sync/bytes"] > sum(4 * p.numel() for p in model.parameters())  # the tied head counts twice
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
    from grpo.core.config import RolloutSection
    from grpo.core.episodes import episodes_of
    from grpo.core.policy import encode_starts, load_tokenizer
    from grpo.core.turn_plan import player_of, with_limits
    from grpo.plugins.host import Host

    link, model = full
    rollouts = rollouts_of(link)
    rollouts.sync(model)
    env = Host.discover().env("guess")
    tokenizer = load_tokenizer(str(tied_model))
    episodes = [one for one in episodes_of(env, "train", limit=2, unbounded=2) for _ in range(4)]
    prompts = encode_starts(tokenizer, episodes)
    wished = RolloutSection(max_completion_length=8, max_turns=3)
    limits = with_limits(wished, env, 512 - max(map(len, prompts)))
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


def sync_with(rollouts: Any, link: Any, model: Any, size: float, **faults: Any) -> None:
    """Syncs well, moves the policy, plants a fault and syncs again."""
    rollouts.sync(model)
    move(model, size)
    rollouts.link = Faulty(link, **faults)
    try:
        rollouts.sync(model)
    finally:
        rollouts.link = link


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
    rollouts.link = Faulty(link, put_weights=put)
    assert rollouts.sync(model)["sync/repeated"] == 1.0
    assert len(calls) == 3  # the failed one, the self-test's, the good one


def test_keys_and_values_of_earlier_weights_stop_the_run(full: tuple[Any, Any]) -> None:
    link, model = full
    with pytest.raises(RunError, match=r"log-probabilities of a fixed prompt differ|a test change of the weights"):
        sync_with(rollouts_of(link), link, model, 0.05, reset_prefix_cache=lambda: None)


def test_weights_that_never_arrive_are_caught_before_the_first_step(full: tuple[Any, Any]) -> None:
    """Fingerprints of what was sent instead of what is served would let this pass; the self-test does not."""
    link, model = full
    sent: dict[str, int] = {}

    def put(weights: Any) -> None:
        for _ in weights:
            pass
        sent.update(weights.fingerprints)

    rollouts = rollouts_of(Faulty(link, put_weights=put, fingerprints=lambda seed: sent))
    with pytest.raises(RunError, match="a test change of the weights should leave the engine within"):
        rollouts.sync(model)


# With an adapter.


@pytest.mark.parametrize("way", ["adapter", "folded"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"use_rslora": True}, {"alpha_pattern": {"q_proj": 64}, "rank_pattern": {"down_proj": 2}}],
    ids=["plain", "rank-stabilised", "patterns"],
)
def test_adapters_are_served_as_they_train(
    links: Callable[[bool], Any], tied_model: Path, way: str, settings: dict[str, Any]
) -> None:
    model = with_adapter(tied_model, **settings)
    rollouts = rollouts_of(links(True), way)
    prompts = prompts_of([7, 150, 300], copies=2)
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    for _ in range(2):
        metrics = rollouts.sync(model)
        assert gap(model, prompts, rollouts.generate(prompts, PARAMS)) < TOLERANCE
        assert metrics["sync/folded"] == float(way == "folded")
        assert rollouts.differing(model) == []
        move(model, 0.01)
    assert all(torch.equal(p, frozen[name]) for name, p in model.named_parameters() if name in frozen)
    if way == "adapter":
        assert metrics["sync/bytes"] < sum(4 * p.numel() for p in model.parameters()) / 2


def test_auto_serves_the_policy_both_ways_while_it_measures(lora: tuple[Any, Any]) -> None:
    from grpo.core.lora_choice import TRIALS

    link, model = lora
    rollouts = rollouts_of(link, "auto")
    prompts = prompts_of([20, 150])
    ways = []
    for _ in range(2 * TRIALS + 2):
        ways.append(rollouts.sync(model)["sync/folded"])
        assert gap(model, prompts, rollouts.generate(prompts, PARAMS)) < TOLERANCE
        move(model, 0.005)
    assert ways[: 2 * TRIALS] == [0.0] * TRIALS + [1.0] * TRIALS
    assert ways[-1] == ways[-2]


@pytest.mark.parametrize("size", [0.01, 1e-6], ids=["large step", "learning rate 1e-6"])
def test_a_stale_adapter_stops_the_run_by_name(lora: tuple[Any, Any], size: float) -> None:
    from grpo.core.sync import Adapter, adapter_of

    link, model = lora
    kept = adapter_of(model)
    stale = "base_model.model.model.layers.0.self_attn.v_proj.lora_B.weight"

    def put(adapter: Adapter) -> None:
        link.put_adapter(Adapter(adapter.rank, {**adapter.tensors, stale: kept.tensors[stale]}))

    with pytest.raises(RunError, match=rf"second full sync.*{stale}"):
        sync_with(rollouts_of(link), link, model, size, put_adapter=put)


def test_an_adapter_that_is_dropped_stops_the_run(lora: tuple[Any, Any]) -> None:
    link, model = lora
    with pytest.raises(RunError, match=r"second full sync.*lora_A\.weight"):
        sync_with(rollouts_of(link), link, model, 0.01, put_adapter=lambda adapter: None)


def test_base_weights_served_in_the_place_of_the_adapter_stop_the_run(lora: tuple[Any, Any]) -> None:
    """The adapter is in the engine, bit for bit, and no request asks for it."""
    link, model = lora

    def put(adapter: Any) -> None:
        link.put_adapter(adapter)
        link._request = None

    with pytest.raises(RunError, match="second full sync"):
        sync_with(
            rollouts_of(link),
            link,
            model,
            0.01,
            put_adapter=put,
            adapter_fingerprints=lambda adapter, seed: fingerprints(adapter.tensors, seed),
        )


def test_base_weights_folded_without_their_adapter_stop_the_run(
    lora: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when adapters are unmerged before the copy: what is sent and what is served agree, and both are wrong."""
    from grpo.core import rollout_engine
    from grpo.core.sync import weight_stream

    link, model = lora
    rollouts = rollouts_of(link, "folded")
    rollouts.sync(model)
    monkeypatch.setattr(rollout_engine, "weight_stream", lambda model, **_: weight_stream(model, base=True))
    with pytest.raises(RunError, match=r"fixed prompt differ|a test change"):
        rollouts.sync(model)


def test_a_wrong_scaling_stops_the_run(lora: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Scaled twice before the fingerprints are taken: only what the engine computes shows it."""
    from grpo.core import rollout_engine
    from grpo.core.sync import Adapter, adapter_of

    def twice(model: Any, *changed: Any) -> Adapter:
        adapter = adapter_of(model, *changed)
        return Adapter(adapter.rank, {n: 2 * t if ".lora_B." in n else t for n, t in adapter.tensors.items()})

    link, model = lora
    rollouts = rollouts_of(link)
    rollouts.sync(model)
    monkeypatch.setattr(rollout_engine, "adapter_of", twice)
    with pytest.raises(RunError, match=r"fixed prompt differ|a test change"):
        rollouts.sync(model)


def test_an_engine_that_was_restarted_after_the_sync_is_not_sampled_from(lora: tuple[Any, Any]) -> None:
    from functools import partial

    from grpo.core.proven_steps import rolled_out
    from grpo.core.sync_fault import SyncFault

    link, model = lora
    epochs = [0]
    faulty = Faulty(link, epoch=lambda: epochs[0])
    rollouts = rollouts_of(faulty)
    rollouts.sync(model)
    epochs[0] = 1
    with pytest.raises(SyncFault, match="restarted after the sync"):
        rollouts.generate(prompts_of([9]), PARAMS)
    prompts = prompts_of([9, 140])
    sampled, metrics = rolled_out(rollouts, model, partial(rollouts.generate, prompts, PARAMS), again=False)
    assert gap(model, prompts, sampled) < TOLERANCE
    assert metrics["sync/bytes"] > sum(4 * p.numel() for p in model.parameters()), "the base weights came along"


def test_a_fresh_adapter_that_is_never_served_is_caught_at_the_start(
    links: Callable[[bool], Any], tied_model: Path
) -> None:
    """B is zero, so base weights and adapter give the same numbers; only the self-test's change tells."""
    from peft import LoraConfig, get_peft_model

    link = links(True)
    model = get_peft_model(base_model(tied_model), LoraConfig(r=RANK, target_modules="all-linear"))
    faulty = Faulty(
        link,
        put_adapter=lambda adapter: setattr(link, "_request", None),
        adapter_fingerprints=lambda adapter, seed: fingerprints(adapter.tensors, seed),
    )
    with pytest.raises(RunError, match="a test change of the weights should leave the engine within"):
        rollouts_of(faulty).sync(model)
