"""Chat templates: variables that become defaults, blocks that a template opens, and templates that raise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo.core.env.prompts import encode_prompts
from grpo.core.policy.chat_template import opened_block, rendered, set_variables, texts_of, without_variables
from grpo.core.policy.embedded import embedded_model_path
from grpo.core.policy.load import load_tokenizer
from grpo.plugins.errors import UsageError
from grpo.plugins.types import Message

ASKED = [Message(role="user", content="2 + 3?")]
# Opens the thinking of the policy unless enable_thinking is false, as QwQ and Qwen3.5 do.
THINKS = (
    "\n{%- for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}"
    "{%- else %}{{ '<think>\n' }}{%- endif %}{%- endif %}"
)


@pytest.fixture
def tokenizer() -> Any:
    tokenizer = load_tokenizer(str(embedded_model_path()))
    tokenizer.chat_template = THINKS
    return tokenizer


def prompt(tokenizer: Any, **given: Any) -> str:
    return str(rendered(tokenizer, ASKED, tokenize=False, add_generation_prompt=True, **given))


def test_variables_are_the_templates_defaults_also_after_it_was_saved(tokenizer: Any, tmp_path: Path) -> None:
    thinking, direct = prompt(tokenizer), prompt(tokenizer, enable_thinking=False)
    assert thinking != direct
    set_variables(tokenizer, {"enable_thinking": False})
    assert prompt(tokenizer) == direct
    assert prompt(tokenizer, enable_thinking=True) == thinking
    assert without_variables(tokenizer.chat_template) == THINKS
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text((embedded_model_path() / "config.json").read_text())
    assert prompt(load_tokenizer(str(tmp_path))) == direct
    assert prompt(load_tokenizer(str(tmp_path), {"enable_thinking": True})) == thinking, "the last ones win"


@pytest.mark.parametrize(
    "value", [True, False, 3, 0.5, 'it\'s "so" %} {{ x }}', "", "\u25c1 two\nlines"], ids=lambda value: repr(value)
)
def test_a_variable_has_the_value_that_was_given(tokenizer: Any, value: Any) -> None:
    tokenizer.chat_template = "{{ style }}|{{ style is string }}|{{ style is boolean }}"
    expected = prompt(tokenizer, style=value)
    set_variables(tokenizer, {"style": value})
    assert prompt(tokenizer) == expected
    assert without_variables(tokenizer.chat_template).startswith("{{ style }}")


def test_variables_reach_each_of_several_templates(tokenizer: Any) -> None:
    tokenizer.chat_template = {"default": "{{ style }}", "tool_use": "tools {{ style }}"}
    set_variables(tokenizer, {"style": "brief"})
    assert prompt(tokenizer) == "brief"
    assert prompt(tokenizer, chat_template="tool_use") == "tools brief"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("enable_thinkin", "reads no variable 'enable_thinkin'. Did you mean 'enable_thinking'?"),
        ("im_start", "reads no variable 'im_start'"),
        ("messages", "messages is set by each prompt itself"),
    ],
)
def test_a_variable_that_changes_nothing_is_refused(tokenizer: Any, name: str, why: str) -> None:
    with pytest.raises(UsageError) as refusal:
        set_variables(tokenizer, {name: "x"})
    assert why in str(refusal.value)


@pytest.mark.parametrize(
    ("begun", "block"),
    [
        ("<think>\n", ("<think>\n", "</think>")),
        ("<think>", ("<think>", "</think>")),
        ("<think>\nWell", ("<think>\nWell", "</think>")),
        ("<seed:think>", ("<seed:think>", "</seed:think>")),
        ("[THINK]", ("[THINK]", "[/THINK]")),
        ("\u25c1think\u25b7", ("\u25c1think\u25b7", "\u25c1/think\u25b7")),
        ("<think>\n\n</think>\n\n", ("", "")),
        ("<assistant>\n", ("", "")),
        ("<|assistant|>\n", ("", "")),
        ("assistant\n", ("", "")),
    ],
)
def test_a_block_that_the_template_opens_is_known(tokenizer: Any, begun: str, block: tuple[str, str]) -> None:
    tokenizer.chat_template = (
        "{% for message in messages %}<user>write <think> {{ message.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}" + begun + "{% endif %}"
    )
    assert opened_block(tokenizer) == block


def test_a_text_has_the_opening_that_stands_in_its_prompt(tokenizer: Any) -> None:
    said = ["2 + 3 = 5\n</think>\n5", "2 + 3 is", "<think>a</think>5"]
    turns = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in said]
    assert texts_of(tokenizer, turns) == [f"<think>\n{said[0]}", said[1], f"<think>\n{said[2]}"]
    set_variables(tokenizer, {"enable_thinking": False})
    assert texts_of(tokenizer, turns) == said


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ({"rag": "x", "tool_use": "y"}, "several (rag, tool_use) and none of the name 'default'"),
        ("{{ messages[0].content.missing() }}", "UndefinedError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages[0]['content'] + 1 }}", "TypeError"),
        ("{{ raise_exception('no system\nmessages') }}", "no system messages"),
        ("{% if %}", "Expected an expression"),
    ],
)
def test_whatever_a_template_raises_is_one_line(tokenizer: Any, template: Any, why: str) -> None:
    tokenizer.chat_template = template
    with pytest.raises(UsageError) as refusal:
        encode_prompts(tokenizer, [ASKED])
    assert "the model's chat template refuses the messages (user)" in str(refusal.value)
    assert why in str(refusal.value) or why == "UndefinedError"
    assert "\n" not in str(refusal.value)
