"""Times an update of a model with random weights, and measures its memory, for the parts of benchmarks/gpu.py."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def config_of(model: str) -> Any:
    """Returns the configuration of a built-in shape, or of a tiny one."""
    from transformers import AutoConfig

    from grpo.core.planning.memory.shapes import BUILT_IN, shape_of

    if model != "tiny":
        return shape_of(model)
    values = dict(BUILT_IN["Qwen3-0.6B"]) | {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    values |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 2048}
    return AutoConfig.for_model(values.pop("model_type"), **values)


def saved_config(model: str, folder: Path) -> Any:
    """Writes the configuration of a model without a limit of its context, and the embedded tokenizer; returns it."""
    from grpo.core.policy.load import load_tokenizer, policy_source

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer(policy_source(None).path)
    config = config_of(model)
    config.eos_token_id, config.pad_token_id, config.bos_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id, None
    config.max_position_embeddings = 2**20
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return config


def update(
    model: str, lora: bool, micro_batch: int, completion: int, checkpointing: str, steps: int, out: str
) -> dict[str, Any]:
    """Returns time and peak memory of an update of a model with random weights, and what the planner says of it."""
    import torch
    import update_time
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM

    from grpo.core.planning.memory.estimate import shape
    from grpo.core.policy.attention import attend_without_plans
    from grpo.core.policy.load import add_lora

    folder = Path(out) / model
    config = saved_config(model, folder)
    save_file({"unused": torch.zeros(1)}, folder / "model.safetensors")  # planning looks for weights and reads none
    planned: dict[str, Any] = {}

    def policy(plan: Any) -> Any:
        """Makes random weights on the device; no file of their size is written."""
        train = plan.config.train
        counted = shape(config, train.dtype, plan.config.lora, device=device())
        tokens = plan.longest_prompt + completion
        head = plan.config.train.head
        planned["bytes"] = counted.update(tokens, micro_batch, train.checkpointing, device(), head)
        planned["tokens"] = tokens
        attend_without_plans()
        with torch.device(device()):
            made = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, train.dtype))
        return add_lora(made, plan.config.lora) if plan.config.lora.enabled else made

    options = argparse.Namespace(
        side="grpo", model=folder, lora=lora, no_sharing=False, checkpointing=checkpointing, steps=steps,
        group_size=max(2, micro_batch), micro_batch=micro_batch, completion=completion, shortest=completion,
        dtype="bfloat16" if device() == "cuda" else "float32",
    )  # fmt: skip
    run = Path(out) / "run"
    shutil.rmtree(run, ignore_errors=True)
    seconds = update_time.train(options, run, policy)
    peak = torch.cuda.max_memory_allocated() if device() == "cuda" else 0
    error = 100 * (planned["bytes"] / peak - 1) if peak else None
    about = {"seconds": seconds, "peak bytes": peak, "planned bytes": planned["bytes"], "planned, % off": error}
    return {**about, "tokens of a sequence": planned["tokens"]}


def update_in_a_process(**settings: Any) -> dict[str, Any] | str:
    """Returns the figures of an update in a process of its own, or the last line of its error."""
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--update", json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr)
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]
