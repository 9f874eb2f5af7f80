"""What is not all of the weights is never declared whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from grpo.core.config.sections import LoraSection
from grpo.core.policy.load import load_policy, load_tokenizer
from grpo.core.policy.save import problem_of, refuse_incomplete, save_policy, written_shapes
from grpo.plugins.errors import RunError

DUE = {"embed": (4, 2), "norm": (2,), "head": (4, 2)}
ADAPTED = "base_model.model.model.layers.1.mlp.up_proj.lora_B.weight"


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (DUE, None),
        ({**DUE, "embed": (0,)}, "embed is empty"),
        ({**DUE, "embed": (2, 2)}, r"embed has shape [2, 2], not [4, 2]"),
        ({"embed": (4, 2), "norm": (2,)}, "head is missing, and 0 more of 3"),
        ({}, "embed is missing, and 2 more of 3"),
        ({"embed": (4, 2), "norm": (2,), "head.0": (2, 2), "head.1": (2, 2)}, None),  # renamed, and all there
        ({"embed": (4, 2), "norm": (2,), "head.0": (2, 2)}, "14 elements, and the model has 18"),
    ],
)
def test_a_tensor_that_is_not_all_there_is_named(written: Any, words: str | None) -> None:
    found = problem_of(written, DUE)
    assert (found is None) == (words is None)
    assert (words or "") in (found or "")


@pytest.mark.parametrize(
    ("lora", "victim"),
    [(LoraSection(), "model.embed_tokens.weight"), (LoraSection(enabled=True, rank=4), ADAPTED)],
    ids=["full", "adapter"],
)
def test_weights_are_compared_with_the_models_own_configuration(
    lora: LoraSection, victim: str, tiny_model: Path, tmp_path: Path
) -> None:
    policy = load_policy(str(tiny_model), "float32", lora)
    save_policy(policy, load_tokenizer(str(tiny_model)), tmp_path / "policy")
    refuse_incomplete(tmp_path / "policy", policy)
    (file,) = (tmp_path / "policy").glob("*.safetensors")
    whole = load_file(file)
    assert written_shapes(tmp_path / "policy") == {name: tuple(tensor.shape) for name, tensor in whole.items()}
    parts = {
        "is empty": torch.zeros(0),
        "has shape": whole[victim][:1].clone(),
    }
    for words, part in parts.items():
        save_file({**whole, victim: part}, file, metadata={"format": "pt"})
        with pytest.raises(RunError, match=f"{victim} {words}"):
            refuse_incomplete(tmp_path / "policy", policy)
    save_file({name: t for name, t in whole.items() if name != victim}, file, metadata={"format": "pt"})
    with pytest.raises(RunError, match=f"{victim} is missing"):
        refuse_incomplete(tmp_path / "policy", policy)


def test_a_policy_that_lacks_weights_never_appears(tiny_model: Path, tmp_path: Path) -> None:
    policy = load_policy(str(tiny_model), "float32", LoraSection())
    policy.model.embed_tokens.weight.data = torch.zeros(0)  # as ZeRO-3 leaves it between two passes
    with pytest.raises(RunError, match=r"embed_tokens\.weight is empty"):
        save_policy(policy, load_tokenizer(str(tiny_model)), tmp_path / "policy")
    assert not list(tmp_path.iterdir())
