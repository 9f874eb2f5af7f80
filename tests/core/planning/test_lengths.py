"""Where completions are cut, and the prompts that do not fit beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo.core.config.schema import parse_config
from grpo.core.env.episodes import Episode
from grpo.core.planning.facts import Facts, ModelFacts, read_model
from grpo.core.planning.lengths import LengthsPart, decide_lengths, longest_prompt
from grpo.plugins.errors import DatasetError, UsageError
from grpo.plugins.types import Message


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> ModelFacts:
    return read_model(str(tiny_model))


def asking(*texts: str, answer: str | None = None) -> dict[str, list[Episode]]:
    prompts = [(Message(role="user", content=text),) for text in texts]
    return {"train": [Episode(n, prompt, {}, answer, {}) for n, prompt in enumerate(prompts)]}


def test_completions_are_shorter_for_the_embedded_model_unless_told(facts_of: Callable[..., Facts]) -> None:
    def cut(embedded: bool, **rollout: Any) -> int:
        config = parse_config({"env": "one", "rollout": rollout})
        return decide_lengths(config, facts_of(embedded=embedded)).max_completion_length

    assert (cut(True), cut(False), cut(False, max_completion_length=7)) == (96, 512, 7)


def test_the_longest_prompt_is_counted_and_one_that_is_too_long_named(
    model: ModelFacts, facts_of: Callable[..., Facts]
) -> None:
    (env,) = facts_of().envs
    rows, cut = asking("What is 2?", "Why? " * 30), LengthsPart(16)
    longest = longest_prompt(model, env, rows, cut)
    assert longest > 60
    assert longest_prompt(model, env, rows, cut, most=longest) == longest
    with pytest.raises(DatasetError, match=rf"row 1: the prompt has {longest} tokens, over rollout\.max_prompt_length"):
        longest_prompt(model, env, rows, cut, most=longest - 1)
    assert model.context is not None
    assert longest_prompt(model, env, rows, LengthsPart(model.context - longest)) == longest
    with pytest.raises(DatasetError, match="together over the model's context"):
        longest_prompt(model, env, rows, LengthsPart(model.context - longest + 1))


def test_worked_answers_count_where_they_are_learned(model: ModelFacts, facts_of: Callable[..., Facts]) -> None:
    (env,) = facts_of().envs
    rows, cut = asking("What is 2?", answer="so " * 2000), LengthsPart(16)
    assert longest_prompt(model, env, rows, cut)
    with pytest.raises(DatasetError, match="its worked answer"):
        longest_prompt(model, env, rows, cut, taught=True)


def test_a_template_that_shows_nothing_is_refused_by_the_tokenizers_name(
    tiny_model: Path, facts_of: Callable[..., Facts]
) -> None:
    model = replace(read_model(str(tiny_model)), tokenizer_source="there")
    model.tokenizer.chat_template = "hello"
    (env,) = facts_of().envs
    with pytest.raises(UsageError, match="the chat template of 'there' makes one and the same prompt"):
        longest_prompt(model, env, asking("What is 2?", "Why?"), LengthsPart(16))
