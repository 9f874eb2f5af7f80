"""The embedded model as it ships: light to find, small, loadable as it is, and taught what its documentation says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo.core.policy.embedded import embedded_model_path
from grpo.envs.gsm8k.spec import GSM8K

TAGS = (
    *("<reasoning>", "</reasoning>", "<answer>", "</answer>"),
    *("<start_working_out>", "<end_working_out>", "<SOLUTION>", "</SOLUTION>"),
    *("<think>", "</think>", "####"),
)
COMPLETION = 72  # tokens, the limit of the default run
RECIPE = Path(__file__).parents[3] / "examples" / "embedded_model"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(embedded_model_path())


@pytest.fixture(scope="module")
def model() -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(embedded_model_path())


def asked(split: str, count: int, **options: Any) -> list[dict[str, Any]]:
    env = GSM8K.factory(**options)
    return [env.reset(options={"row": row})[1] for row in GSM8K.dataset(split, **options)[:count]]


def test_finding_the_model_loads_no_heavy_package() -> None:
    code = (
        "import sys; from grpo.core.policy.embedded import embedded_model_path; embedded_model_path()\n"
        "print([name for name in ('torch', 'transformers', 'trl', 'datasets', 'gymnasium') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_files_are_small() -> None:
    assert sum(file.stat().st_size for file in embedded_model_path().glob("*.*")) < 2_000_000


def test_the_policy_is_tiny_float32_and_ends_where_the_chat_template_ends(model: Any, tokenizer: Any) -> None:
    import torch

    assert 700_000 < model.num_parameters() < 800_000
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.config.max_position_embeddings == tokenizer.model_max_length == 2048
    assert model.config.vocab_size == len(tokenizer)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert tokenizer.eos_token == "<|im_end|>"
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id != tokenizer.eos_token_id
    assert tokenizer.padding_side == "left"


def test_tags_and_digits_are_single_tokens_that_decoding_keeps(tokenizer: Any) -> None:
    for tag in TAGS:
        assert len(tokenizer(tag)["input_ids"]) == 1, tag
    text = "<reasoning>\n1972+3=1975\n</reasoning>\n<answer>\n1975\n</answer>\n#### 1975 żółw 漢字 🙂\n"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert [token for token in tokenizer.convert_ids_to_tokens(ids) if re.search(r"\d\d", token)] == []


def test_the_chat_template_opens_the_answer_when_asked_to(tokenizer: Any) -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    text = "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nu<|im_end|>\n"
    assert tokenizer.apply_chat_template(messages, tokenize=False) == text
    assert (
        tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        == text + "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("level", ["mixed", "hard"])
@pytest.mark.parametrize("template", ["reasoning", "solution", "think", "hash"])
def test_every_worked_answer_fits_the_default_completion_length(tokenizer: Any, level: str, template: str) -> None:
    for info in asked("train", 300, level=level, template=template):
        assert len(tokenizer(info["demonstration"])["input_ids"]) + 1 <= COMPLETION


@pytest.mark.slow
def test_the_policy_mostly_guesses_but_can_work_a_problem_out(model: Any, tokenizer: Any) -> None:
    import torch

    torch.manual_seed(0)
    infos = asked("test", 150)
    prompts = [
        tokenizer.apply_chat_template(info["prompt"], tokenize=False, add_generation_prompt=True) for info in infos
    ]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    shares = []
    for sample in (False, True):
        output = model.generate(**inputs, max_new_tokens=COMPLETION, do_sample=sample, top_k=0 if sample else None)
        replies = tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        finals = [re.search(r"<answer>\n(\d+)\n</answer>", reply) for reply in replies]
        right = [
            found is not None and found[1] == info["row"]["answer"] for found, info in zip(finals, infos, strict=True)
        ]
        shares.append(sum(right) / len(right))
    assert 0.3 <= shares[0] <= 0.5
    assert 0.2 <= shares[1] <= 0.5


@pytest.mark.nightly
def test_the_script_makes_the_same_tokenizer_again(tmp_path: Path) -> None:
    if not RECIPE.is_dir():
        pytest.skip(f"no recipe at {RECIPE}; run from a checkout")
    subprocess.run([sys.executable, RECIPE / "make.py", tmp_path, "--only-tokenizer"], check=True, timeout=300)
    assert (tmp_path / "tokenizer.json").read_bytes() == (embedded_model_path() / "tokenizer.json").read_bytes()
