"""Milliseconds of a linear layer, forward and backward: as torch and PEFT compute it, and as a run here does.

    python benchmarks/layers.py [--rows 500] [--rounds 41] [--threads N] [--decoding]

The shapes are those of SmolLM2-135M-Instruct and of Qwen2.5-0.5B, in float32, with a LoRA adapter of rank 16 that alone
is trained, and without one, where the weights are. The inputs want a gradient, as in every layer but the first. Both
sides are the same module on the same inputs, and take turns; a figure is the median. --decoding measures in their
place what the layers of a block of SmolLM2-135M take of processor time for 1 to 256 rows, as they are laid out for
decoding: what a guessed token costs that is checked along with the others.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import nullcontext
from typing import Any

SHAPES = {"576 to 576": (576, 576), "576 to 1536": (576, 1536), "1536 to 576": (1536, 576), "896 to 4864": (896, 4864)}


def layer(width: int, out: int, lora: bool) -> Any:
    """A module that holds one linear layer."""
    import torch

    module: Any = torch.nn.Sequential(torch.nn.Linear(width, out, bias=False))
    if not lora:
        return module
    from peft import LoraConfig, get_peft_model

    return get_peft_model(module, LoraConfig(r=16, target_modules=["0"], init_lora_weights=False))


def seconds(module: Any, inputs: Any, gradient: Any, *, ours: bool) -> float:
    """Seconds of one forward and backward pass."""
    from grpo.core.train.update.layers import faster_layers

    module.zero_grad()
    inputs = inputs.detach().requires_grad_()
    with faster_layers(module) if ours else nullcontext():
        began = time.perf_counter()
        module(inputs).backward(gradient)
        return time.perf_counter() - began


def decoding(rounds: int) -> None:
    """Prints what the products of one block take, by the number of rows."""
    import torch

    from grpo.core.rollout.hf.faster_layers import product

    shapes = ((576, 960), (576, 576), (576, 3072), (1536, 576))  # what joined layers of attention and MLP take and give
    products = [(product(torch.nn.Linear(width, out, bias=False)), width) for width, out in shapes]
    print(f"{'rows':>5}{'ms':>9}{'ms a row':>10}")
    for rows in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        inputs = [torch.randn(rows, width) for _, width in products]
        least = float("inf")
        for _ in range(rounds):
            began = time.process_time()
            for (times, _), one in zip(products, inputs, strict=True):
                times(one)
            least = min(least, 1e3 * (time.process_time() - began))
        print(f"{rows:>5}{least:9.3f}{least / rows:10.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500, help="tokens of a micro batch")
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--threads", type=int, help="default: as many as torch takes")
    parser.add_argument("--decoding", action="store_true", help="products by the number of rows")
    options = parser.parse_args()
    import torch

    if options.threads:
        torch.set_num_threads(options.threads)
    if options.decoding:
        decoding(options.rounds)
        return
    print(f"{options.rows} rows, {torch.get_num_threads()} threads")
    print(f"{'layer':<16}{'trained':<10}{'as it comes, ms':>16}{'grpo, ms':>10}{'ratio':>7}")
    for name, (width, out) in SHAPES.items():
        for lora in (True, False):
            module = layer(width, out, lora)
            inputs, gradient = torch.randn(options.rows, width), torch.randn(options.rows, out)
            found: dict[bool, list[float]] = {False: [], True: []}
            for _ in range(options.rounds):
                for ours in found:
                    found[ours].append(1e3 * seconds(module, inputs, gradient, ours=ours))
            plain, fast = (statistics.median(found[ours][1:]) for ours in (False, True))
            how = "LoRA" if lora else "full"
            print(f"{name:<16}{how:<10}{plain:16.2f}{fast:10.2f}{plain / fast:7.2f}", flush=True)


if __name__ == "__main__":
    main()
