"""A real chat model: what it reads, what it samples, and what a step teaches it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from same_metrics import metrics_of
from small_run import small_run

pytestmark = pytest.mark.real_model

QUESTIONS = (
    "What is 17 + 25?",
    "Name a colour.",
    "Ann has 3 pens and buys 4 more, then gives half of one to Bob and loses it. How many whole pens does she have?",
)
TOKENS = 24
APART = 1e-3  # nats: float32, a batch beside one row at a time


@pytest.fixture(scope="module")
def policy(real_model: Path) -> tuple[Any, Any]:
    """Model and tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM

    from grpo.core.policy.load import load_tokenizer

    tokenizer = load_tokenizer(str(real_model))
    return AutoModelForCausalLM.from_pretrained(real_model, dtype=torch.float32).eval(), tokenizer


def prompts_of(tokenizer: Any) -> list[list[int]]:
    asked = [[{"role": "user", "content": question}] for question in QUESTIONS]
    return [list(tokenizer.apply_chat_template(one, add_generation_prompt=True)["input_ids"]) for one in asked]


def test_greedy_answers_are_those_of_generate_and_of_a_forward_pass(policy: tuple[Any, Any]) -> None:
    """Row by row, alone: a batch may differ only where two tokens are as good as each other."""
    import torch

    from grpo.core.rollout.hf.sampler import sample
    from grpo.core.rollout.types import SamplingParams

    model, tokenizer = policy
    ends = (tokenizer.eos_token_id,)
    params = SamplingParams(max_tokens=TOKENS, eos_ids=ends, pad_id=tokenizer.pad_token_id, temperature=0.0)
    prompts = prompts_of(tokenizer)
    for prompt, found in zip(prompts, sample(model, prompts, params), strict=True):
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            alone = model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=TOKENS
            )[0, len(prompt) :].tolist()
            whole = torch.tensor([[*prompt, *found.token_ids]])
            logits = model(input_ids=whole).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        logprobs = logits.gather(1, torch.tensor(found.token_ids)[:, None])[:, 0]
        assert (logprobs - torch.tensor(found.logprobs)).abs().max() < APART
        assert (logits.max(-1).values - logprobs).max() < APART, "a token that was not the best"
        same = [ours == theirs for ours, theirs in zip(found.token_ids, alone, strict=False)]
        if not all(same):
            place = same.index(False)
            tied = abs(float(logits[place, found.token_ids[place]] - logits[place, alone[place]]))
            assert tied < APART, f"token {place} differs from generate's by {tied} nats"


def test_the_first_screen_shows_the_system_prompt_that_the_template_brings(
    real_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from grpo.core.config.schema import parse_config
    from grpo.core.display.terminal import PlainLines
    from grpo.core.planning.decide import make_plan
    from grpo.plugins.host import Host

    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"question": "What is {row} + 4?", "answer": "{row + 4}"}}\n' for row in range(20)))
    env = f"rows:dataset={rows},prompt=question,answer=answer"
    tree = {"model": str(real_model), "env": env, "rewards": ["math"], "out": str(tmp_path / "run")}
    PlainLines().planned(make_plan(parse_config(tree), Host.discover()), tmp_path / "run", [])
    shown = capsys.readouterr().out.splitlines()
    begin = next(number for number, line in enumerate(shown) if "as the model reads it" in line)
    prompt = [line.removeprefix("    | ") for line in shown[begin + 1 :]]
    assert prompt[0] == "<|im_start|>system"
    assert "SmolLM" in prompt[1]
    assert "What is " in "".join(prompt)
    assert "<|im_start|>assistant" in prompt[-2:]


def test_a_step_changes_its_adapter_alone_and_samples_as_it_trains(real_model: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    out = tmp_path / "run"
    small_run(
        out,
        model=str(real_model),
        env="arithmetic:lowest=1,highest=3",
        dataset=None,
        rewards=["length:target=1,limit=100,unit=characters"],
        lora={"enabled": True},
        train={"prompts_per_step": 1, "lr": 1e-3},
    )
    rows = metrics_of(out)
    assert [row["step"] for row in rows] == [1, 2]
    assert all(row["sampling/sampling_logp_difference/max"] < APART for row in rows)
    assert any(row["grad_norm"] > 0 for row in rows)
    adapter = load_file(out / "model" / "adapter_model.safetensors")
    moved = [name for name, tensor in adapter.items() if "lora_B" in name and torch.any(tensor != 0)]
    assert len(moved) == sum("lora_B" in name for name in adapter)


@pytest.mark.nightly
def test_it_learns_sums_by_grpo_alone(real_model: Path, tmp_path: Path) -> None:
    """The recipe of examples/real_model, half as long."""

    from grpo.core.cli.main import cli

    recipe = Path(__file__).parents[3] / "examples" / "real_model" / "sums.toml"
    words = ["run", "--config", str(recipe), "--model", str(real_model), "--out", str(tmp_path / "run"), "--quiet"]
    assert not cli([*words, "--steps", "10", "--eval-size", "100"], standalone_mode=False)
    rows = metrics_of(tmp_path / "run")
    before, after = (row["held_out/accuracy"] for row in rows if "held_out/accuracy" in row)
    assert before < 0.2
    assert after > before + 0.2
