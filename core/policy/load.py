"""Loads the policy: tokenizer, weights, adapter. Python code that comes with a model is never run."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from grpo.core.config.sections import LoraSection
from grpo.core.policy.chat_template import Value, set_variables
from grpo.core.policy.embedded import embedded_model_path
from grpo.core.processes.loading import loading
from grpo.core.processes.memory import keep_freed_memory
from grpo.core.processes.spinning import watch_processors
from grpo.core.record.run_dir import ORIGIN, read_json
from grpo.core.record.versions import DEPRECATED_CHECKPOINTING
from grpo.core.text.printable import shortened
from grpo.plugins._hub import NotReached, from_hub
from grpo.plugins.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# For base models that ship no chat template: plain text, so that no token has to mean something new to the model.
PLAIN_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] | capitalize }}: {{ message['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
CUSTOM_CODE = "trust_remote_code"  # transformers' error where a model is code of its own tells to set it
NO_LANGUAGE_MODEL = re.compile(r"Unrecognized configuration class <class '(?:\w+\.)*(\w+?)(?:Config)?'>")
LONGEST_REASON = 300  # characters of another library's error
WEIGHTS = ("model.safetensors", "model-", "pytorch_model")  # how the files with weights begin; the index counts too


@dataclass(frozen=True, slots=True)
class PolicySource:
    path: str  # a folder or a hub id, as transformers accepts it
    embedded: bool  # it is the model that ships with grpo, or was trained from it
    trained: str = ""  # where it was trained, for people; "" for a model that comes from elsewhere
    tokenizer: str | None = None  # where its tokenizer comes from, where that is another place


def policy_source(model: str | None) -> PolicySource:
    """Returns the source for the user's `--model`, or the embedded model for None. Raises UsageError."""
    if model is None:
        return PolicySource(str(embedded_model_path()), embedded=True)
    folder = Path(model).expanduser()
    try:
        local = folder.exists() or model.startswith((".", "/", "~")) or model.count("/") > 1  # a hub id has one
    except OSError as error:
        raise UsageError(f"--model {model}: {error.strerror}. Name a folder or a hub id.") from None
    if local:
        if not folder.exists():
            raise UsageError(f"--model {model}: there is no such folder. Name one saved by transformers, or a hub id.")
        if not folder.is_dir():
            raise UsageError(f"--model {model}: it is a file. Name a folder saved by transformers, or a hub id.")
        if not (folder / "config.json").is_file():
            raise UsageError(f"--model {model}: no config.json in that folder. Name a folder saved by transformers.")
        if not any(file.name.startswith(WEIGHTS) for file in folder.iterdir()):
            raise UsageError(f"--model {model}: no weights in that folder. Name a folder saved by transformers.")
        origin = read_json(folder / ORIGIN) or {}
        return PolicySource(str(folder), embedded=bool(origin.get("embedded")), trained=str(origin.get("trained", "")))
    return PolicySource(model, embedded=False)


@loading()
def load_tokenizer(source: str, variables: Mapping[str, Value] | None = None) -> PreTrainedTokenizerBase:
    """Loads the tokenizer, with left padding, a pad token and a chat template. Raises UsageError."""
    from transformers import AutoTokenizer

    try:
        with _reached(source):
            tokenizer = AutoTokenizer.from_pretrained(source, padding_side="left", trust_remote_code=False)
    except Exception as error:  # a broken file ends in any error of tokenizers
        raise UsageError(_cannot_load(source, "tokenizer", error)) from None
    if tokenizer.eos_token is None:
        raise UsageError(f"the tokenizer of {source} has no end-of-sequence token, so no completion could ever end.")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.chat_template is None:
        begins = tokenizer.bos_token_id is not None and tokenizer("x")["input_ids"][0] == tokenizer.bos_token_id
        tokenizer.chat_template = ("{{ bos_token }}" if begins else "") + PLAIN_CHAT_TEMPLATE
    if variables:
        set_variables(tokenizer, variables)
    return tokenizer


def load_model_config(source: str) -> Any:
    """Loads the model's configuration, without weights. Raises UsageError if there is none to load."""
    from transformers import AutoConfig

    try:
        with _reached(source):
            return AutoConfig.from_pretrained(source, trust_remote_code=False)
    except Exception as error:  # values that do not fit each other end in an error of its own kind
        raise UsageError(_cannot_load(source, "configuration", error)) from None


def count_parameters(config: Any) -> int:
    """Counts the parameters that a configuration describes; allocates none of them. Raises UsageError."""
    return sum(parameter.numel() for parameter in empty_model(config).parameters())


def refuse_unknown_targets(lora: LoraSection, config: Any) -> None:
    """Refuses an adapter for modules that the model does not have, or that take none."""
    from torch import nn

    if not lora.enabled or isinstance(lora.targets, str):
        return
    model = empty_model(config)
    modules = [(name, module) for name, module in model.named_modules() if name]
    linear = linear_modules(config)
    its_own = f"Its linear ones: {', '.join(linear)}."
    if not lora.targets:
        raise UsageError(f"lora.targets names no module of the model. {its_own}")
    for target in lora.targets:
        meant = [module for name, module in modules if name == target or name.endswith(f".{target}")]
        unfit = [module for module in meant if not hasattr(module, "weight") or module.weight.ndim < 2]
        if not meant:
            problem = f"the model has no module '{target}'.{did_you_mean(target, linear)}"
        elif any(module is model.get_output_embeddings() for module in meant):
            problem = f"'{target}' is the output layer, where TRL trains no adapter."
        elif any(isinstance(module, nn.Embedding) for module in meant):
            # PEFT saves the whole table beside such an adapter, and often it is the output layer's matrix as well.
            problem = f"'{target}' is a table of embeddings, where no adapter is trained."
        elif unfit:
            problem = f"'{target}' is a {type(unfit[0]).__name__} and holds no matrix to adapt."
        else:
            continue
        raise UsageError(f"lora.targets: {problem} {its_own}")


def linear_modules(config: Any) -> list[str]:
    """Returns the last parts of the names of a model's linear modules, sorted, without its head. Raises UsageError."""
    from torch import nn

    model = empty_model(config)
    head = model.get_output_embeddings()
    return sorted(
        {
            name.rpartition(".")[2]
            for name, module in model.named_modules()
            if isinstance(module, nn.Linear) and module is not head
        }
    )


def empty_model(config: Any, dtype: str = "float32") -> PreTrainedModel:
    """Builds the causal language model that a configuration describes on the meta device. Raises UsageError."""
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype), trust_remote_code=False)
    except Exception as error:  # values that do not fit each other end in an error of the model's own code
        raise UsageError(_cannot_load(config.name_or_path or config.model_type, "model", error)) from error
    return _name_backbone(model)


def _name_backbone(model: PreTrainedModel) -> PreTrainedModel:
    """Makes `base_model` the module that computes the hidden states, in a model whose prefix names none (Llama 4)."""
    from transformers import PreTrainedModel

    inner = [name for name, module in model.named_children() if isinstance(module, PreTrainedModel)]
    if model.base_model is model and len(inner) == 1:
        model.base_model_prefix = inner[0]
    return model


def _name_experts(config: Any) -> None:
    text = config.get_text_config()
    if not hasattr(text, "num_experts") and hasattr(text, "num_local_experts"):
        kind = type(text)
        kind.attribute_map = {**kind.attribute_map, "num_experts": "num_local_experts"}


def text_setting(config: Any, name: str) -> Any:
    """Returns a setting of a model's text part: a value, one for each layer where they differ, or None."""
    text = config.get_text_config()
    try:
        return getattr(text, name, None)
    except RuntimeError:  # transformers refuses to name one value for layers that differ (Gemma 4)
        return [getattr(layer, name, None) for layer in text.per_layer_config]


@loading()
def load_model(source: str, dtype: str, bits: int | None = None) -> PreTrainedModel:
    """Loads the weights (`bits` 4: quantised). From then on this process keeps freed memory, and uses no cuDNN."""
    import torch
    from transformers import AutoModelForCausalLM

    from grpo.core.policy.attention import attend_without_plans

    keep_freed_memory()
    attend_without_plans()
    if not torch.cuda.is_available():
        watch_processors(torch.get_num_threads())
    arguments: dict[str, Any] = {"dtype": getattr(torch, dtype), "trust_remote_code": False}
    if bits == 4:
        from transformers import BitsAndBytesConfig

        arguments["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=getattr(torch, dtype),
        )
    try:
        with _reached(source):
            model, info = AutoModelForCausalLM.from_pretrained(source, output_loading_info=True, **arguments)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a broken file ends in any error of safetensors
        raise UsageError(_cannot_load(source, "weights", error)) from None
    if info["missing_keys"]:
        missing = sorted(info["missing_keys"])
        raise UsageError(
            f"the weights of '{source}' lack {missing[0]} and {len(missing) - 1} more, which would start at random. "
            "Name a folder that transformers saved from a causal language model."
        )
    # A checkpoint holds tied weights once. Unless told, transformers warns of the others each time a run resumes.
    model._keys_to_ignore_on_save = set(model.all_tied_weights_keys)
    _name_experts(model.config)
    return _name_backbone(model)


def add_lora(model: PreTrainedModel, lora: LoraSection) -> Any:
    """Wraps a model with a fresh adapter; only the adapter trains. Raises UsageError."""
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    if lora.bits is not None:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha if lora.alpha is not None else 2 * lora.rank,
        lora_dropout=lora.dropout,
        target_modules=lora.targets if isinstance(lora.targets, str) else list(lora.targets),
        exclude_modules=_unadaptable(model) if isinstance(lora.targets, str) else None,
        task_type="CAUSAL_LM",
    )
    try:
        with _without_peft_deprecations():
            return get_peft_model(model, config)
    except ValueError as error:
        raise UsageError(f"lora.targets {lora.targets}: {str(error).splitlines()[0]}") from None


@contextmanager
def _without_peft_deprecations() -> Iterator[None]:
    """Hides that PEFT uses an old name of transformers; a plan adds adapters before the libraries are silenced."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", DEPRECATED_CHECKPOINTING, FutureWarning)
        yield


def _unadaptable(model: PreTrainedModel) -> list[str] | None:
    """Returns the linear modules that take no adapter: they return something else, or a kernel reads past it."""
    from peft.tuners.tuners_utils import _check_lora_target_modules_mamba
    from torch import nn

    config, modules = SimpleNamespace(peft_type="LORA"), []
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear):
            continue
        try:
            _check_lora_target_modules_mamba(config, model, name.rpartition(".")[2])
        except ValueError:
            modules.append(name)
            continue
        if type(module) is not nn.Linear and not _returns_rows(module):
            modules.append(name)
    return modules or None


def _returns_rows(module: Any) -> bool:
    import torch

    if not type(module).__module__.startswith("transformers.models."):
        return True  # quantised ones, which compute the same in another way
    rows = torch.zeros(1, module.in_features, device=module.weight.device, dtype=module.weight.dtype)
    try:
        with torch.no_grad():
            output = module(rows)
    except Exception:  # it wants more, or other rows
        return False
    return isinstance(output, torch.Tensor) and output.shape == (1, module.out_features)


def add_saved_adapter(model: PreTrainedModel, folder: str, *, trainable: bool) -> Any:
    """Wraps a model with an adapter that PEFT saved. Raises UsageError."""
    from peft import PeftModel

    try:
        with _reached(folder), _without_peft_deprecations():
            return PeftModel.from_pretrained(model, folder, is_trainable=trainable)
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(_cannot_load(folder, "adapter", error)) from None


def load_policy(
    source: str, dtype: str, lora: LoraSection, *, adapter: str | None = None, trainable: bool = True
) -> Any:
    """Loads the policy of a run, with a saved `adapter` or a fresh one when the run trains one."""
    model = load_model(source, dtype, lora.bits)
    if adapter is not None:
        return add_saved_adapter(model, adapter, trainable=trainable)
    return add_lora(model, lora) if lora.enabled else model


def refuse_impossible_lora(lora: LoraSection) -> None:
    """Refuses quantisation where it cannot work. Raises UsageError if no GPU, or no bitsandbytes."""
    import importlib.util

    import torch

    if lora.bits is None:
        return
    if not torch.cuda.is_available():
        raise UsageError(
            "lora.bits=4 (QLoRA) needs an NVIDIA GPU. Leave it out to train a LoRA adapter on this machine."
        )
    if importlib.util.find_spec("bitsandbytes") is None:
        raise UsageError("lora.bits=4 (QLoRA) needs bitsandbytes. Install it with: pip install 'grpo-kit[qlora]'")


def end_ids(tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel) -> tuple[int, ...]:
    """Returns every token that ends a completion: the tokenizer's and those of the model's generation settings."""
    declared = model.generation_config.eos_token_id if model.generation_config is not None else None
    ids = [declared] if isinstance(declared, int) else list(declared or [])
    if tokenizer.eos_token_id not in ids:
        ids.insert(0, tokenizer.eos_token_id)
    return tuple(ids)


def _reached(source: str) -> AbstractContextManager[None]:
    """Makes a load from the hub report why it failed; a source that is or can only be a folder needs no hub."""
    return from_hub(source) if HUB_ID.fullmatch(source) and not Path(source).exists() else nullcontext()


def _cannot_load(source: str, what: str, error: Exception) -> str:
    if CUSTOM_CODE in f"{error} {error.__cause__}":
        return (
            f"cannot load the {what} of '{source}': it needs Python code that comes with it, which is never run here. "
            "Name a model that transformers knows by itself."
        )
    if "/" not in source and isinstance(error, OSError) and not Path(source).exists():
        unreached = f" ({str(error).partition(', and')[0]})" if isinstance(error, NotReached) else ""
        return (
            f"cannot load the {what} of '{source}': it is no folder here and no model of the hub{unreached}, where "
            "models are named OWNER/NAME. Correct the name."
        )
    if isinstance(error, NotReached):
        return f"cannot load the {what} of '{source}': {error}"
    if kind := NO_LANGUAGE_MODEL.search(str(error)):
        return (
            f"cannot load the {what} of '{source}': transformers has no causal language model of the kind {kind[1]}. "
            "Models of pictures and sounds are mostly such. Name a model that reads and writes text."
        )
    reason = shortened(" ".join(str(error).split()), LONGEST_REASON)
    if not reason or not isinstance(error, (OSError, ValueError)):
        reason = f"{type(error).__name__}: {reason}"
    remedy = "Name a folder saved by transformers, or a hub id that this machine can reach."
    if isinstance(error, ImportError):
        remedy = "Install what it names, or name a model that does without it."
    return f"cannot load the {what} of '{source}': {reason} {remedy}"
