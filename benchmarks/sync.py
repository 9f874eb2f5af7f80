"""How long does it take to hand new weights to vLLM? Beside TRL's way for LoRA: merge in place, push all, unmerge.

    python benchmarks/sync.py [--layers 3 8] [--width 128 512] [--repeats 10]

For models of growing size, all in one engine per size: seconds and bytes of one hand-over, without the proof (its
seconds stand beside it). Needs vLLM; on a CPU without a GPU: make vllm.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RANK = 16


def policies(folder: Path, layers: int, width: int) -> tuple[Any, Any]:
    """Saves a random Qwen2 and returns it twice: as it is, and with an adapter that is no longer fresh."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, Qwen2Config

    config = Qwen2Config(
        vocab_size=8000,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64,
        intermediate_size=3 * width,
        max_position_embeddings=1024,
        eos_token_id=2,
        pad_token_id=0,
        bos_token_id=None,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    adapted = get_peft_model(base, LoraConfig(r=RANK, target_modules="all-linear", task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if ".lora_B." in name:
                parameter.normal_(std=0.02)
    return plain, adapted


def merged_push(link: Any, model: Any) -> None:
    """What TRL 1.16 does with an adapter, in its steps: merge in place, hand every weight over, unmerge."""
    from grpo.core.rollout.sync.payload import weight_stream

    model.merge_adapter()
    link.put_weights(weight_stream(model, base=True))
    model.unmerge_adapter()
    link.reset_prefix_cache()


def timed(action: Callable[[], Any], repeats: int) -> float:
    """Returns the least seconds, which other programs add least to; the first call does not count."""
    action()
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        found.append(time.perf_counter() - start)
    return min(found)


def measure(layers: int, width: int, repeats: int) -> None:
    """Prints the rows of one model size."""
    from grpo.core.rollout.engine.proven import EngineRollouts
    from grpo.core.rollout.engine.vllm import EngineSettings, VllmEngine
    from grpo.core.rollout.sync.payload import adapted_modules, adapter_of, weight_stream

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain, adapted = policies(folder, layers, width)
        link = VllmEngine(
            EngineSettings(
                model=str(folder),
                dtype="float32",
                context=512,
                raw_logprobs=True,
                memory_share=0.3,
                lora_rank=RANK,
                lora_modules=tuple(adapted_modules(adapted)),
            )
        )
        count = sum(p.numel() for p in plain.parameters())
        weights = sum(t.numel() * t.element_size() for _, t in weight_stream(plain))

        def full() -> None:
            link.put_weights(weight_stream(plain))
            link.reset_prefix_cache()

        def folded() -> None:
            link.put_weights(weight_stream(adapted))
            link.reset_prefix_cache()

        def alone() -> None:
            link.put_adapter(adapter_of(adapted))
            link.reset_prefix_cache()

        rows = [
            ("full", "streamed", timed(full, repeats), weights),
            ("LoRA", "merge, push, unmerge (TRL's way)", timed(lambda: merged_push(link, adapted), repeats), weights),
            ("LoRA", "folded out of place", timed(folded, repeats), weights),
        ]
        link.put_weights(weight_stream(adapted, base=True))
        rows.append(("LoRA", "adapter alone", timed(alone, repeats), adapter_of(adapted).bytes))
        proven = EngineRollouts(link, tolerance=1e-3, lora_sync="adapter")
        proof = timed(lambda: proven.sync(adapted), repeats)
        link.close()
    slowest = rows[1][2]
    for training, way, seconds, size in rows:
        times = f"{slowest / seconds:.1f}x" if training == "LoRA" else ""
        print(f"| {count / 1e6:.1f} M | {training} | {way} | {1e3 * seconds:.1f} | {size / 2**20:.1f} | {times} |")
    print(f"| {count / 1e6:.1f} M | LoRA | adapter alone, proven | {1e3 * proof:.1f} | | |", flush=True)
    gc.collect()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--layers", type=int, nargs="+", default=[3, 8])
    parser.add_argument("--width", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--repeats", type=int, default=10)
    asked = parser.parse_args()
    print("| parameters | training | way | ms | MiB | against TRL's way |")
    print("|---|---|---|---|---|---|")
    for layers, width in zip(asked.layers, asked.width, strict=True):
        measure(layers, width, asked.repeats)


if __name__ == "__main__":
    main()
