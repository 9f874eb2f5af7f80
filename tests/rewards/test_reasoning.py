"""Where the reasoning of a completion ends, in the forms of published models."""

import pytest

from grpo.rewards.answer_text import reasoning_end, text_answer
from grpo.rewards.code.extraction import program_of
from grpo.rewards.gsm8k.verifier import gsm8k
from grpo.rewards.math.answer import statement

FORMS = {
    "tags": "<think>{}</think>{}",
    "long tags": "<thinking>{}</thinking>{}",
    "no opening": "{}</think>{}",
    "reason": "<reason>{}</reason>{}",
    "thought": "<thought>{}</thought>{}",
    "scratchpad": "<scratchpad>{}</scratchpad>{}",
    "other case": "<Think>{}</Think>{}",
    "Seed": "<seed:think>{}</seed:think>{}",
    "LongCat": "<longcat_think>{}</longcat_think>{}",
    "Magistral": "[THINK]{}[/THINK]{}",
    "Kimi": "\u25c1think\u25b7{}\u25c1/think\u25b7{}",
    "Gemma 4": "<|channel>thought\n{}<channel|>{}",
    "Gemma": "<unused94>thought\n{}<unused95>{}",
    "gpt-oss": "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>{}",
    "gpt-oss, constrained": "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final "
    "<|constrain|>json<|message|>{}<|return|>",
    "gpt-oss without its tokens": "analysis{}assistantfinal{}",
    "Sky-T1": "<|begin_of_thought|>{}<|end_of_thought|>\n\n<|begin_of_solution|>{}<|end_of_solution|>",
    "Cohere": "<|START_THINKING|>{}<|END_THINKING|><|START_RESPONSE|>{}<|END_RESPONSE|>",
    "Apriel": "Here are my reasoning steps:\n{}\n[BEGIN FINAL RESPONSE]\n{}\n[END FINAL RESPONSE]",
    "Granite": "Here is my thought process: {}\n\nHere is my response: {}",
    "Solar": "<|think|>{}<|end|><|begin|>assistant<|content|>{}",
    "DeepSeek's tokens": "<\uff5cbegin\u2581of\u2581thinking\uff5c>{}<\uff5cend\u2581of\u2581thinking\uff5c>{}",
    "Unsloth": "<start_working_out>{}<end_working_out>{}",
}


@pytest.mark.parametrize("thought", ["so \\boxed{71}", "The answer is 71", "<answer>71</answer>", "70 + 1 = 71"])
@pytest.mark.parametrize("form", FORMS)
def test_what_follows_the_reasoning_is_the_answer(form: str, thought: str) -> None:
    text = FORMS[form].format(thought, "It is 72.")
    assert gsm8k(text, "72").ok is True
    assert gsm8k(text, "71").ok is False
    stated = statement(text)
    assert stated is not None
    assert "72" in stated.text
    assert "71" not in stated.text
    assert "71" not in (text_answer(text) or "")


@pytest.mark.parametrize("form", FORMS)
def test_reasoning_is_read_where_nothing_follows_it(form: str) -> None:
    if form != "gpt-oss, constrained":
        assert gsm8k(FORMS[form].format("so 70 + 2 = 72", "").removesuffix("[END FINAL RESPONSE]"), "72").ok is True


def test_a_program_is_what_follows_the_reasoning() -> None:
    assert program_of(FORMS["Kimi"].format("x = 1", "x = 2")) == "x = 2"


@pytest.mark.parametrize(
    "text",
    ["", "72", "[THINK] 72", "<think>72", "<b>72</b>", "an assistantfinal word", "<|channel|>analysis<|message|>72"],
)
def test_a_text_without_an_end_has_no_reasoning(text: str) -> None:
    assert reasoning_end(text) == 0
