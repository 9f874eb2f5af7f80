"""Answers belong to their prompts, are those of plain transformers where nothing is drawn, and repeat with a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo.core.measure.generate import BATCH, answers, encode_fitting
from grpo.core.planning.facts import ModelFacts, read_model
from grpo.core.policy.weights import Weights, find_weights
from grpo.plugins.errors import UsageError
from grpo.plugins.types import Message

QUESTIONS = ("One?", "What is three times four, and why?", "Zero?")


def asked(*questions: str) -> list[list[Message]]:
    return [[{"role": "user", "content": question}] for question in questions]


@pytest.fixture(scope="module")
def weights(tiny_model: Path) -> Weights:
    return find_weights(str(tiny_model))


def told(weights: Weights, *questions: str, **changed: Any) -> list[list[tuple[str, bool]]]:
    settings = {"samples": 1, "temperature": 1.0, "max_tokens": 6, "seed": 0, "loaded": lambda: None, **changed}
    model = read_model(weights.base)
    prompts = encode_fitting(model, asked(*questions), settings["max_tokens"])
    return answers(weights, model.tokenizer, prompts, **settings)


def test_greedy_answers_are_those_of_transformers_one_by_one(weights: Weights) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(weights.base)
    tokenizer = AutoTokenizer.from_pretrained(weights.base)
    expected = []
    for chat in asked(*QUESTIONS):
        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        with torch.no_grad():
            whole = model.generate(**ids, max_new_tokens=6, do_sample=False)
        expected.append(tokenizer.decode(whole[0, ids["input_ids"].shape[1] :], skip_special_tokens=True))
    assert len(set(expected)) == len(QUESTIONS)
    assert [[text for text, _ in each] for each in told(weights, *QUESTIONS, temperature=0.0)] == [
        [text] for text in expected
    ]


def test_more_answers_than_fit_a_batch_stay_with_their_prompts(weights: Weights) -> None:
    alone = [told(weights, question, temperature=0.0)[0][0] for question in QUESTIONS]
    many = told(weights, *QUESTIONS, temperature=0.0, samples=BATCH // 2 + 3)
    assert many == [[answer] * (BATCH // 2 + 3) for answer in alone]


def test_a_seed_repeats_what_was_drawn_and_another_draws_anew(weights: Weights) -> None:
    first = told(weights, *QUESTIONS, samples=2)
    assert first == told(weights, *QUESTIONS, samples=2)
    assert first != told(weights, *QUESTIONS, samples=2, seed=1)
    assert first[0][0] != first[0][1]


@pytest.mark.slow
def test_an_answer_that_the_limit_cut_says_so(weights: Weights) -> None:
    short, long = told(weights, *QUESTIONS, max_tokens=1), told(weights, *QUESTIONS, max_tokens=400)
    assert all(cut for ((_, cut),) in short)
    assert not all(cut for ((_, cut),) in long)


def test_a_prompt_that_does_not_fit_is_named_with_what_would(weights: Weights) -> None:
    model: ModelFacts = read_model(weights.base)
    assert len(encode_fitting(model, asked(*QUESTIONS), 900)) == len(QUESTIONS)
    with pytest.raises(UsageError, match=r"prompt 2 has \d+ tokens .* over the model's context of 1024\. Lower --max"):
        encode_fitting(model, asked("One?", QUESTIONS[1] * 20), 1000)
