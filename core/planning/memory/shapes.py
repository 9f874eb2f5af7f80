"""Lists the configurations of well-known models, from their published config.json files, to need no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grpo.core.policy.load import load_model_config
from grpo.core.policy.weights import find_weights, is_adapter, refuse_missing_run, training_source
from grpo.core.record.run_dir import is_run

_QWEN25 = {"model_type": "qwen2", "vocab_size": 151936, "max_position_embeddings": 32768, "rope_theta": 1e6}
_QWEN3 = {
    "model_type": "qwen3",
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rope_theta": 1e6,
    "head_dim": 128,
    "num_key_value_heads": 8,
}
_LLAMA3 = {
    "model_type": "llama",
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_theta": 5e5,
    "num_key_value_heads": 8,
}


def _sizes(hidden: int, intermediate: int, layers: int, heads: int, *, tied: bool) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "tie_word_embeddings": tied,
    }


BUILT_IN: dict[str, dict[str, Any]] = {
    "Llama-3.2-1B": _LLAMA3 | _sizes(2048, 8192, 16, 32, tied=True) | {"head_dim": 64},
    "Llama-3.2-3B": _LLAMA3 | _sizes(3072, 8192, 28, 24, tied=True) | {"head_dim": 128},
    "Llama-3.1-8B": _LLAMA3 | _sizes(4096, 14336, 32, 32, tied=False),
    "Llama-3.1-70B": _LLAMA3 | _sizes(8192, 28672, 80, 64, tied=False),
    "Qwen2.5-0.5B": _QWEN25 | _sizes(896, 4864, 24, 14, tied=True) | {"num_key_value_heads": 2},
    "Qwen2.5-1.5B": _QWEN25 | _sizes(1536, 8960, 28, 12, tied=True) | {"num_key_value_heads": 2},
    "Qwen2.5-3B": _QWEN25 | _sizes(2048, 11008, 36, 16, tied=True) | {"num_key_value_heads": 2},
    "Qwen2.5-7B": _QWEN25 | _sizes(3584, 18944, 28, 28, tied=False) | {"num_key_value_heads": 4, "vocab_size": 152064},
    "Qwen2.5-14B": _QWEN25 | _sizes(5120, 13824, 48, 40, tied=False) | {"num_key_value_heads": 8, "vocab_size": 152064},
    "Qwen2.5-32B": _QWEN25 | _sizes(5120, 27648, 64, 40, tied=False) | {"num_key_value_heads": 8, "vocab_size": 152064},
    "Qwen2.5-72B": _QWEN25 | _sizes(8192, 29568, 80, 64, tied=False) | {"num_key_value_heads": 8, "vocab_size": 152064},
    "Qwen3-0.6B": _QWEN3 | _sizes(1024, 3072, 28, 16, tied=True),
    "Qwen3-1.7B": _QWEN3 | _sizes(2048, 6144, 28, 16, tied=True),
    "Qwen3-4B": _QWEN3 | _sizes(2560, 9728, 36, 32, tied=True),
    "Qwen3-8B": _QWEN3 | _sizes(4096, 12288, 36, 32, tied=False),
}
_VARIANTS = ("-instruct", "-base")  # of one shape


def built_in(model: str) -> str | None:
    """Returns the built-in name for `Qwen/Qwen2.5-7B-Instruct` and the like, or None."""
    name = model.rpartition("/")[2].lower()
    for variant in _VARIANTS:
        name = name.removesuffix(variant)
    return next((known for known in BUILT_IN if known.lower() in (name, f"meta-{name}")), None)


def policy_shape(model: str | None) -> Any:
    """Returns the configuration of the model that a run names; None is the embedded one. Raises UsageError."""
    if model is None:
        return shape_of(training_source(None).path)
    if not (folder := Path(model).expanduser()).exists():
        refuse_missing_run(folder)
    return shape_of(model)


def shape_of(model: str) -> Any:
    """Returns the configuration of a folder (of a run or adapter: its model's), a built-in shape, or a hub id."""
    from transformers import AutoConfig

    folder = Path(model).expanduser()
    if is_run(folder) or is_adapter(folder):
        return load_model_config(find_weights(model).base)
    name = built_in(model)
    if name is None or (folder / "config.json").is_file():
        return load_model_config(model)
    values = dict(BUILT_IN[name])
    return AutoConfig.for_model(values.pop("model_type"), **values)
