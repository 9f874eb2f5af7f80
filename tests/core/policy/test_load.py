"""Loading a policy: what is named when it cannot be loaded, prompts as the model's template has them, whole saves."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from grpo.core.config.sections import LoraSection
from grpo.core.env.prompts import encode_prompts
from grpo.core.policy.load import (
    PLAIN_CHAT_TEMPLATE,
    add_lora,
    add_saved_adapter,
    count_parameters,
    end_ids,
    load_model,
    load_model_config,
    load_policy,
    load_tokenizer,
    policy_source,
    refuse_impossible_lora,
    refuse_unknown_targets,
)
from grpo.core.policy.save import save_policy
from grpo.plugins.errors import UsageError
from grpo.plugins.types import Message

PROMPT = [Message(role="system", content="Be brief."), Message(role="user", content="What is 3 + 4?")]


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model to spoil."""
    copy = tmp_path / "model"
    shutil.copytree(tiny_model, copy)
    return copy


def change(file: Path, **values: Any) -> None:
    settings = json.loads(file.read_text()) | values
    file.write_text(json.dumps({key: value for key, value in settings.items() if value is not None}))


def refusal(call: Any, *arguments: Any) -> str:
    with pytest.raises(UsageError) as error:
        call(*arguments)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_a_folder_that_holds_no_model_is_named(folder: Path) -> None:
    assert policy_source(str(folder)).path == str(folder)
    (folder / "model.safetensors").unlink()
    assert "no weights in that folder" in refusal(policy_source, str(folder))
    (folder / "config.json").unlink()
    assert "no config.json in that folder" in refusal(policy_source, str(folder))
    for missing in (str(folder / "none"), "./none", "~/none", str(folder / "tokenizer.json"), "/" + "x" * 5000):
        assert missing in refusal(policy_source, missing)
    assert "it is a file" in refusal(policy_source, str(folder / "tokenizer.json"))
    assert "there is no such folder" in refusal(policy_source, str(folder / "none"))
    assert policy_source("org/model").path == "org/model"
    assert policy_source(None).embedded


@pytest.mark.parametrize(
    ("file", "content", "load", "what"),
    [
        ("model.safetensors", "rubbish", lambda path: load_model(path, "float32"), "weights"),
        ("config.json", "{", load_model_config, "configuration"),
        ("tokenizer.json", "{", load_tokenizer, "tokenizer"),
        ("tokenizer.json", '{"version": "1.0"}', load_tokenizer, "tokenizer"),
        ("config.json", '{"model_type": "no-such-kind"}', load_model_config, "configuration"),
    ],
    ids=["weights", "config", "tokenizer", "half-a-tokenizer", "kind"],
)
def test_a_broken_file_is_one_line_that_says_what_could_not_be_loaded(
    file: str, content: str, load: Any, what: str, folder: Path
) -> None:
    (folder / file).write_text(content)
    assert f"cannot load the {what} of '{folder}'" in refusal(load, str(folder))


@pytest.mark.parametrize(
    ("file", "settings", "load", "what"),
    [
        (
            "tokenizer_config.json",
            {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": ["mine.Mine", "mine.Mine"]}},
            load_tokenizer,
            "tokenizer",
        ),
        (
            "config.json",
            {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine"}},
            load_model_config,
            "configuration",
        ),
        (
            "config.json",
            {"model_type": "vit", "auto_map": {"AutoModelForCausalLM": "mine.Mine"}},
            lambda path: count_parameters(load_model_config(path)),
            "model",
        ),
        (
            "config.json",
            {"model_type": "vit", "auto_map": {"AutoModelForCausalLM": "mine.Mine"}},
            lambda path: load_model(path, "float32"),
            "weights",
        ),
    ],
    ids=["tokenizer", "config", "empty", "weights"],
)
def test_code_that_comes_with_a_model_is_neither_run_nor_offered_to_be(
    file: str, settings: dict[str, Any], load: Any, what: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or "n")
    if what == "tokenizer":  # a kind of model that transformers knows has a tokenizer without that code
        change(folder / "config.json", model_type="mine")
    change(folder / file, **settings)
    (folder / "mine.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\n")
    message = refusal(load, str(folder))
    assert f"cannot load the {what} of '{folder}': it needs Python code that comes with it" in message
    assert "Name a model that transformers knows by itself" in message
    assert asked == []
    assert not (folder / "ran").exists()


@pytest.mark.core
def test_what_is_no_language_model_is_named(folder: Path) -> None:
    change(folder / "config.json", model_type="vit", architectures=["ViTModel"])
    assert "cannot load the model" in refusal(count_parameters, load_model_config(str(folder)))


def test_a_tokenizer_that_can_end_nothing_is_refused(folder: Path) -> None:
    (folder / "config.json").unlink()  # which would choose a class of tokenizer with an end token of its own
    change(folder / "tokenizer_config.json", eos_token=None)
    assert "no end-of-sequence token" in refusal(load_tokenizer, str(folder))


def test_prompts_are_rendered_by_the_models_own_template(tiny_model: Path) -> None:
    tokenizer = load_tokenizer(str(tiny_model))
    (ids,) = encode_prompts(tokenizer, [PROMPT])
    assert tokenizer.decode(ids) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is 3 + 4?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert encode_prompts(tokenizer, []) == []
    assert encode_prompts(tokenizer, [PROMPT, PROMPT[1:]])[0] == ids, "no padding, whatever stands beside it"


def test_a_base_model_without_a_template_or_a_pad_token_gets_plain_ones(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    (folder / "config.json").unlink()
    change(folder / "tokenizer_config.json", pad_token=None)
    tokenizer = load_tokenizer(str(folder))
    assert tokenizer.pad_token == tokenizer.eos_token
    assert tokenizer.chat_template == PLAIN_CHAT_TEMPLATE
    (ids,) = encode_prompts(tokenizer, [PROMPT])
    assert tokenizer.decode(ids) == "System: Be brief.\n\nUser: What is 3 + 4?\n\nAssistant:"


def test_a_base_model_whose_texts_begin_with_a_token_gets_it_once(folder: Path) -> None:
    from tokenizers import Tokenizer, processors

    (folder / "chat_template.jinja").unlink()
    change(folder / "tokenizer_config.json", bos_token="<|im_start|>")
    bpe = Tokenizer.from_file(str(folder / "tokenizer.json"))
    bpe.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", bpe.token_to_id("<|im_start|>"))]
    )
    bpe.save(str(folder / "tokenizer.json"))
    tokenizer = load_tokenizer(str(folder))
    (ids,) = encode_prompts(tokenizer, [PROMPT])
    assert tokenizer.decode(ids).startswith("<|im_start|>System: Be brief.")
    assert ids.count(tokenizer.bos_token_id) == 1


def test_a_template_that_refuses_the_messages_says_so(folder: Path) -> None:
    template = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    (folder / "chat_template.jinja").write_text(template)
    message = refusal(encode_prompts, load_tokenizer(str(folder)), [PROMPT])
    assert "refuses the messages (system, user): no system role" in message


def test_every_end_token_of_the_model_ends_a_completion(tiny_model: Path) -> None:
    tokenizer, model = load_tokenizer(str(tiny_model)), load_model(str(tiny_model), "float32")
    assert end_ids(tokenizer, model) == (tokenizer.eos_token_id,)
    model.generation_config.eos_token_id = [5, 6]
    assert set(end_ids(tokenizer, model)) == {tokenizer.eos_token_id, 5, 6}
    model.generation_config.eos_token_id = None
    assert end_ids(tokenizer, model) == (tokenizer.eos_token_id,)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_come_in_the_dtype_that_was_asked_for(dtype: str, tiny_model: Path) -> None:
    model = load_model(str(tiny_model), dtype)
    assert {parameter.dtype for parameter in model.parameters()} == {getattr(torch, dtype)}


def test_a_process_with_a_policy_attends_without_cudnn(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bool] = []
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", kept.append)
    load_policy(str(tiny_model), "float32", LoraSection())
    assert kept == [False]


def test_weights_that_are_missing_do_not_start_at_random(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert "lack lm_head.weight and 0 more, which would start at random" in refusal(load_model, str(folder), "float32")


def test_only_the_adapter_trains_and_starts_as_the_model(tiny_model: Path) -> None:
    base = load_model(str(tiny_model), "float32")
    ids = torch.tensor([[3, 4, 5]])
    before = base(ids).logits
    policy = load_policy(str(tiny_model), "float32", LoraSection(enabled=True, rank=4))
    trained = [name for name, parameter in policy.named_parameters() if parameter.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    assert torch.equal(policy(ids).logits, before)
    scales = {module.scaling["default"] for module in policy.modules() if hasattr(module, "lora_A")}
    assert scales == {2.0}, "alpha is twice the rank"


def test_an_adapter_is_added_without_a_word_of_names_that_transformers_changed(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    model = load_model(str(tiny_model), "float32")

    def renamed(model: object) -> bool:
        warnings.warn(
            "`is_gradient_checkpointing` is deprecated and will be removed in v6.", FutureWarning, stacklevel=2
        )
        return False

    monkeypatch.setattr(type(model), "is_gradient_checkpointing", property(renamed))
    warnings.simplefilter("always")
    lora = LoraSection(enabled=True, rank=4)
    add_lora(model, lora).save_pretrained(tmp_path)
    add_saved_adapter(load_model(str(tiny_model), "float32"), str(tmp_path), trainable=False)
    assert [str(warning.message) for warning in recwarn if "gradient_checkpointing" in str(warning.message)] == []


def test_an_adapter_of_the_embeddings_is_refused(tiny_model: Path) -> None:
    lora = LoraSection(enabled=True, targets=("q_proj", "embed_tokens"))
    message = refusal(refuse_unknown_targets, lora, load_model_config(str(tiny_model)))
    assert "'embed_tokens' is a table of embeddings" in message
    assert "Its linear ones: down_proj" in message


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "mistral3"])
def test_a_model_of_pictures_is_refused_by_its_kind(kind: str) -> None:
    from transformers import AutoConfig

    message = refusal(count_parameters, AutoConfig.for_model(kind))
    assert "transformers has no causal language model of the kind" in message
    assert "Unrecognized" not in message


def test_an_adapter_of_no_module_is_refused(tiny_model: Path) -> None:
    model = load_model(str(tiny_model), "float32")
    assert "lora.targets ('nope',)" in refusal(add_lora, model, LoraSection(enabled=True, targets=("nope",)))


@pytest.mark.parametrize("lora", [LoraSection(), LoraSection(enabled=True, rank=4)], ids=["full", "lora"])
def test_a_saved_policy_loads_again_as_it_was(lora: LoraSection, tiny_model: Path, tmp_path: Path) -> None:
    policy = load_policy(str(tiny_model), "float32", lora)
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.requires_grad:
                parameter.add_(0.01)
    save_policy(policy, load_tokenizer(str(tiny_model)), tmp_path / "saved")
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    ids = torch.tensor([[3, 4, 5]])
    if lora.enabled:
        again = load_policy(str(tiny_model), "float32", lora, adapter=str(tmp_path / "saved"))
        assert not (tmp_path / "saved" / "model.safetensors").exists(), "the base weights are not saved again"
    else:
        again = load_policy(str(tmp_path / "saved"), "float32", lora)
    assert torch.equal(again(ids).logits, policy(ids).logits)
    assert load_tokenizer(str(tmp_path / "saved")).chat_template == load_tokenizer(str(tiny_model)).chat_template


def test_an_adapter_that_cannot_be_loaded_is_named(tiny_model: Path, tmp_path: Path) -> None:
    model = load_model(str(tiny_model), "float32")
    with pytest.raises(UsageError, match="cannot load the adapter"):
        add_saved_adapter(model, str(tmp_path), trainable=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="refused only where there is no GPU")
def test_quantisation_without_a_gpu_is_refused() -> None:
    assert "needs an NVIDIA GPU" in refusal(refuse_impossible_lora, LoraSection(enabled=True, bits=4))
    refuse_impossible_lora(LoraSection(enabled=True))
