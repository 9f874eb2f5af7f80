"""The prompt that is shown before a run: what the model reads, whatever its template makes of the messages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoTokenizer

from grpo.core.display.first_prompt import LINES, first_prompt
from grpo.core.env.episodes import Episode
from grpo.core.policy.embedded import embedded_model_path

SYSTEM = "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are Smol.<|im_end|>\n{% endif %}"
TURNS = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
OPENED = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


@pytest.fixture
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(embedded_model_path())


def plan_of(tokenizer: Any, content: str, agent: object = None) -> Any:
    episode = Episode(0, ({"role": "user", "content": content},), {}, None)
    return SimpleNamespace(envs=[SimpleNamespace(train=(episode,))], tokenizer=tokenizer, agent=agent)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (TURNS + OPENED, ["<|im_start|>user", "2 + 2?<|im_end|>", "<|im_start|>assistant", ""]),
        (TURNS, ["<|im_start|>user", "2 + 2?<|im_end|>", ""]),
        (SYSTEM + TURNS, ["<|im_start|>system", "You are Smol.<|im_end|>", "<|im_start|>user", "2 + 2?<|im_end|>", ""]),
        (TURNS.replace("m['content']", "m['content'] | trim"), ["<|im_start|>user", "2 + 2?<|im_end|>", ""]),
    ],
    ids=["opens-a-turn", "opens-none", "brings-a-system-prompt", "trims"],
)
def test_it_shows_what_the_template_made(tokenizer: Any, template: str, expected: list[str]) -> None:
    tokenizer.chat_template = template
    shown = first_prompt(plan_of(tokenizer, "2 + 2?" if "trim" not in template else "  2 + 2?  "))
    assert shown is not None
    assert shown[1].split("\n") == expected


def test_it_counts_its_tokens_and_obeys_no_terminal_command(tokenizer: Any) -> None:
    content = "red \x1b[31m text"
    shown = first_prompt(plan_of(tokenizer, content))
    assert shown is not None
    messages = [{"role": "user", "content": content}]
    count = len(tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"])
    assert f"{count} tokens" in shown[0]
    assert "\x1b" not in shown[1]


def test_a_long_one_says_what_is_left_out(tokenizer: Any) -> None:
    shown = first_prompt(plan_of(tokenizer, "\n".join(["short", "long " * 400, *["x"] * 100])))
    assert shown is not None
    lines = shown[1].split("\n")
    assert len(lines) == LINES + 1
    assert "more lines" in lines[LINES // 2]
    assert "more characters" in shown[1]
    assert lines[-2].startswith("<|im_start|>assistant")


def test_without_rows_there_is_none(tokenizer: Any) -> None:
    assert first_prompt(SimpleNamespace(envs=[SimpleNamespace(train=())], tokenizer=tokenizer)) is None  # type: ignore[arg-type]


def test_of_an_agent_it_shows_the_task_and_says_that_the_prompt_is_another(tokenizer: Any) -> None:
    shown = first_prompt(plan_of(tokenizer, "2 + 2?", agent="mine"))
    assert shown is not None
    assert shown[1] == "2 + 2?"
    assert "the agent writes the model's prompt itself" in shown[0]
    assert "tokens" not in shown[0]
