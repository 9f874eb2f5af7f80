"""Sampling: every row of a batch is what it would be alone, and tokens come from the distribution asked for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny_families import SIZES, YARN
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from grpo.core.policy.attention import attend_in_blocks
from grpo.core.policy.prompt_keys import PromptKeys
from grpo.core.rollout.hf import sampler
from grpo.core.rollout.hf.sampler import sample
from grpo.core.rollout.types import Sampled, SamplingParams
from grpo.plugins.errors import RunError, UsageError

EOS, PAD = 1, 0
SHAPE: dict[str, Any] = {
    **SIZES,
    "max_position_embeddings": 2048,
    "eos_token_id": EOS,
    "pad_token_id": PAD,
    "bos_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [2.0] * 4,
    "original_max_position_embeddings": 1024,
}
CONFIGS = {
    "qwen2": lambda: Qwen2Config(**SHAPE),
    "qwen3": lambda: Qwen3Config(**SHAPE, head_dim=8),
    "llama-llama3-rope": lambda: LlamaConfig(**SHAPE, rope_parameters=LLAMA3),
    "llama-yarn-rope": lambda: LlamaConfig(**SHAPE, rope_parameters=YARN),
}
PARAMS = SamplingParams(max_tokens=24, eos_ids=(EOS,), pad_id=PAD)


def make(config: Any) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


@pytest.fixture(scope="module")
def policy() -> Any:
    return make(CONFIGS["qwen2"]())


def prompts_of(lengths: Sequence[int]) -> list[list[int]]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(2, 97, (length,), generator=generator).tolist() for length in lengths]


@torch.no_grad()
def alone(model: Any, prompt: Sequence[int], tokens: Sequence[int], temperature: float = 1.0) -> list[float]:
    """Log-probabilities of the tokens in one forward pass without a batch, padding, a cache or position ids."""
    was_training = model.training
    model.eval()
    logits = model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
    model.train(was_training)
    logprobs = (logits.double() / temperature).log_softmax(dim=-1)
    found: list[float] = logprobs.gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()
    return found


def assert_rows_are_their_own(
    model: Any, prompts: Sequence[Sequence[int]], done: Sequence[Sampled], *, within: float = 5e-5, **how: Any
) -> None:
    for prompt, row in zip(prompts, done, strict=True):
        assert row.logprobs == pytest.approx(alone(model, prompt, row.token_ids, **how), abs=within), len(prompt)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_row_of_a_mixed_batch_is_what_it_would_be_alone(name: str) -> None:
    model = make(CONFIGS[name]())
    prompts = prompts_of([1, 2, 40, 700, 1500])
    torch.manual_seed(1)
    done = sample(model, prompts, replace(PARAMS, eos_ids=tuple(range(1, 9))))
    assert len({len(row.token_ids) for row in done}) > 1, "rows end at different steps, so that the batch shrinks"
    assert_rows_are_their_own(model, prompts, done)


@pytest.mark.parametrize("least", [0, 2**60], ids=["held once", "copied"])
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("name", CONFIGS)
def test_members_of_a_group_share_their_prompt_exactly(
    name: str, lora: bool, trains: bool, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(CONFIGS[name]())
    if trains:  # on packed rows
        attend_in_blocks(model.config)
    if lora:
        model = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "up_proj"], init_lora_weights=False))
    monkeypatch.setattr(sampler, "LEAST_SHARED", least)
    attended: list[int] = []

    class Watched(PromptKeys):
        def attend(self, layer: int, query: torch.Tensor, *given: Any) -> torch.Tensor:
            attended.append(len(query))
            return super().attend(layer, query, *given)

    monkeypatch.setattr(sampler, "PromptKeys", Watched)
    one, two = prompts_of([9, 300])
    prompts = [one] * 6 + [two] * 6 + [one] * 2
    torch.manual_seed(2)
    done = sample(model, prompts, replace(PARAMS, eos_ids=tuple(range(1, 6))))
    assert len({row.token_ids for row in done[:6]}) > 1, "members differ"
    assert_rows_are_their_own(model, prompts, done, within=1e-4 if lora else 5e-5)  # a sum of weights rounds once more
    assert bool(attended) == (least == 0)
    if attended:
        assert attended[0] == 14 > attended[-1], "rows that ended left"


def test_prompts_are_held_once_where_it_pays_and_the_model_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    class Watched(PromptKeys):
        def __init__(self, layers: Any, counts: torch.Tensor, owners: torch.Tensor) -> None:
            made.append(len(owners))
            super().__init__(layers, counts, owners)

    monkeypatch.setattr(sampler, "PromptKeys", Watched)
    few = replace(PARAMS, max_tokens=2)
    (short, long), size = prompts_of([9, 1100]), SHAPE["hidden_size"] // 2  # of the keys of a token in a layer
    assert 8 * len(short) * size < sampler.LEAST_SHARED <= 8 * len(long) * size
    sample(make(CONFIGS["qwen2"]()), [short] * 9, few)
    sample(make(CONFIGS["qwen2"]()), [long], few)
    sample(make(CONFIGS["qwen2"]()), [long] * 9 + prompts_of(range(3, 13)), few)
    sample(make(CONFIGS["qwen2"]()).bfloat16(), [long] * 9, few)
    sample(make(MistralConfig(**SHAPE, sliding_window=64)), [long] * 9, few)
    eager = make(CONFIGS["qwen2"]())
    eager.set_attn_implementation("eager")
    sample(eager, [long] * 9, few)
    assert made == []
    sample(make(CONFIGS["qwen2"]()), [long] * 9, few)
    assert made == [9]


def test_a_batch_that_shrinks_many_times_stays_exact(policy: Any) -> None:
    prompts = prompts_of(range(1, 33))
    params = replace(PARAMS, max_tokens=60, eos_ids=tuple(range(1, 12)))
    torch.manual_seed(4)
    done = sample(policy, prompts, params)
    assert len({len(row.token_ids) for row in done}) > 10
    assert_rows_are_their_own(policy, prompts, done)
    for row in done:
        assert all(token not in params.eos_ids for token in row.token_ids[:-1]), "an end token ends the row"
        assert row.finish_reason == ("stop" if row.token_ids[-1] in params.eos_ids else "length")


def test_log_probabilities_are_those_of_the_temperature_before_any_filter(policy: Any) -> None:
    prompts = prompts_of([5, 30])
    torch.manual_seed(5)
    done = sample(policy, prompts, replace(PARAMS, temperature=1.7, top_p=0.8, top_k=20, min_p=0.01))
    assert_rows_are_their_own(policy, prompts, done, temperature=1.7)


@pytest.mark.parametrize("lengths", [[3, 17, 17, 60], [1, 500]])
def test_greedy_tokens_are_those_of_transformers(policy: Any, lengths: list[int]) -> None:
    prompts = prompts_of(lengths)
    done = sample(policy, prompts, replace(PARAMS, temperature=0.0, max_tokens=40))
    settings = GenerationConfig(do_sample=False, max_new_tokens=40, eos_token_id=EOS, pad_token_id=PAD)
    policy.eval()
    for prompt, row in zip(prompts, done, strict=True):
        ids = torch.tensor([prompt])
        expected = policy.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
        assert list(row.token_ids) == expected[0, len(prompt) :].tolist()
        assert row.finish_reason == ("stop" if row.token_ids[-1] == EOS else "length")


def filtered(logits: torch.Tensor, *, temperature: float, top_k: int, top_p: float, min_p: float) -> torch.Tensor:
    """The distribution to sample from, written out token by token."""
    chances = (logits.double() / temperature).softmax(dim=-1).tolist()
    order = sorted(range(len(chances)), key=lambda token: -chances[token])
    if top_k:
        order = order[:top_k]
    if top_p < 1:
        total = math.fsum(chances[token] for token in order)
        kept, mass = [], 0.0
        for token in order:
            kept.append(token)
            mass += chances[token] / total
            if mass >= top_p:
                break
        order = kept
    if min_p:
        order = [token for token in order if chances[token] >= min_p * chances[order[0]]]
    result = torch.zeros(len(chances), dtype=torch.float64)
    for token in order:
        result[token] = chances[token]
    return result / result.sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        {"temperature": 1.0},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"temperature": 1.0, "top_k": 3},
        {"temperature": 1.0, "top_p": 0.7},
        {"temperature": 1.0, "min_p": 0.2},
        {"temperature": 1.3, "top_k": 6, "top_p": 0.9, "min_p": 0.05},
    ],
    ids=str,
)
def test_tokens_come_from_the_exact_distribution(how: dict[str, Any]) -> None:
    model = make(Qwen2Config(**{**SHAPE, "vocab_size": 11, "initializer_range": 0.1}))
    prompt = [3, 7, 5]
    with torch.no_grad():
        logits = model.eval()(input_ids=torch.tensor([prompt])).logits[0, -1]
    chances = filtered(logits, **{"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **how})
    torch.manual_seed(6)
    count = 20_000
    done = sample(model, [prompt] * count, SamplingParams(max_tokens=1, eos_ids=(EOS,), pad_id=PAD, **how))
    seen = Counter(row.token_ids[0] for row in done)
    possible = [token for token, chance in enumerate(chances.tolist()) if chance > 0]
    assert set(seen) <= set(possible), "a filtered token was sampled"
    assert len(possible) > 1
    statistic = sum(
        (seen[token] - count * chances[token].item()) ** 2 / (count * chances[token].item()) for token in possible
    )
    # The 0.999 quantile of chi-square (Wilson and Hilferty's approximation).
    freedom = len(possible) - 1
    limit = freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3
    assert statistic < limit


def test_later_tokens_come_from_their_own_distribution_too() -> None:
    model = make(Qwen2Config(**{**SHAPE, "vocab_size": 5, "initializer_range": 0.1}))
    torch.manual_seed(7)
    count = 20_000
    params = SamplingParams(max_tokens=2, eos_ids=(EOS,), pad_id=PAD)
    done = sample(model, [[3, 2]] * count, params)
    seen = Counter(row.token_ids for row in done)
    for tokens, times in seen.items():
        chance = math.exp(sum(alone(model, [3, 2], tokens)))
        assert times / count == pytest.approx(chance, abs=4.5 * math.sqrt(chance * (1 - chance) / count)), tokens


def test_a_seed_gives_the_same_tokens_again_and_another_seed_others(policy: Any) -> None:
    prompts = prompts_of([4, 20]) * 3
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(sample(policy, prompts, PARAMS))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_a_completion_that_is_cut_is_told_from_one_that_ended(policy: Any) -> None:
    (prompt,) = prompts_of([6])
    (never,) = sample(policy, [prompt], replace(PARAMS, max_tokens=5, eos_ids=(10**6,)))
    assert (never.finish_reason, len(never.token_ids), len(never.logprobs)) == ("length", 5, 5)
    (first,) = never.token_ids[:1]
    greedy = replace(PARAMS, max_tokens=5, temperature=0.0, eos_ids=(10**6,))
    (long,) = sample(policy, [prompt], greedy)
    (short,) = sample(policy, [prompt], replace(greedy, eos_ids=(10**6, long.token_ids[0])))
    assert (short.finish_reason, short.token_ids) == ("stop", long.token_ids[:1])
    (last,) = sample(policy, [prompt], replace(greedy, max_tokens=1, eos_ids=(long.token_ids[0],)))
    assert last.finish_reason == "stop", "an end token in the last place ends the completion"
    assert isinstance(first, int)


def test_what_does_not_fit_the_context_is_refused_and_what_just_fits_is_not(policy: Any) -> None:
    (prompt,) = prompts_of([2044])
    (row,) = sample(policy, [prompt], replace(PARAMS, max_tokens=4, eos_ids=(10**6,)))
    assert len(row.token_ids) == 4
    with pytest.raises(UsageError, match="2044 tokens and 5 new ones do not fit the model's context of 2048"):
        sample(policy, [[5, 6], prompt], replace(PARAMS, max_tokens=5))


def test_an_empty_prompt_is_refused_and_no_prompts_give_no_completions(policy: Any) -> None:
    with pytest.raises(UsageError, match="an empty prompt"):
        sample(policy, [[4], []], PARAMS)
    assert sample(policy, [], PARAMS) == []


@pytest.mark.parametrize("training", [True, False])
def test_the_training_mode_is_restored_also_after_an_error(policy: Any, training: bool) -> None:
    policy.train(training)
    sample(policy, [[4, 5]], replace(PARAMS, max_tokens=1))
    assert policy.training is training
    with pytest.raises(IndexError):
        sample(policy, [[10**6]], PARAMS)
    assert policy.training is training


def test_dropout_and_gradients_stay_out_of_sampling() -> None:
    model = make(Qwen2Config(**SHAPE, attention_dropout=0.5))
    model.train()
    prompts = prompts_of([12, 3])
    torch.manual_seed(8)
    done = sample(model, prompts, PARAMS)
    assert_rows_are_their_own(model, prompts, done)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    "config",
    [
        lambda: LlamaConfig(**SHAPE),
        lambda: LlamaConfig(**SHAPE, rope_parameters=LONG),
        lambda: MistralConfig(**SHAPE, sliding_window=None),
    ],
    ids=["llama", "longrope", "a family that is not known"],
)
def test_a_policy_can_be_trained_after_it_has_sampled(config: Callable[[], Any]) -> None:
    """Whatever a forward pass leaves in the model, as rotations do that depend on the length."""
    model = make(config())
    prompts = prompts_of([9, 4])
    done = sample(model, prompts, PARAMS)
    assert_rows_are_their_own(model, prompts, done)
    tokens = torch.tensor([[*prompts[0], *done[0].token_ids]])
    model(input_ids=tokens, labels=tokens).loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_who_gets_completions_may_compute_gradients(policy: Any) -> None:
    weights = [torch.nn.Parameter(torch.ones(2))]

    def learn(numbers: Sequence[int], done: Sequence[Sampled]) -> None:
        assert not torch.is_grad_enabled()
        with torch.enable_grad():
            (torch.tensor([len(done[0].token_ids), 1.0]) * weights[0]).sum().backward()

    sample(policy, prompts_of([5, 7]), PARAMS, learn)
    assert weights[0].grad is not None


def test_a_policy_that_computes_nan_ends_in_words() -> None:
    model = make(Qwen2Config(**SHAPE))
    with torch.no_grad():
        model.lm_head.weight.fill_(math.nan)
    for temperature in (0.0, 1.0):
        with pytest.raises(RunError, match=r"logits are not numbers.*train\.lr"):
            sample(model, [[4, 5]], replace(PARAMS, temperature=temperature))
