"""Seconds of a forward and backward pass over one batch: padded, in plain rows, and packed.

    python benchmarks/packing.py [--lora] [--hidden 896] [--layers 2] [--rounds 3]
    python benchmarks/packing.py --model .real-model/SmolLM2-135M-Instruct --prompt 108 --completion 48

Padded is what TRL trains on: prompts padded on the left, completions on the right, and the model's own mask. Plain and
packed rows are ours (core/train/update/packing.py); all three end in our output layer, and differ in nothing else. The
model has random weights in the shape of Qwen2.5-0.5B, few layers and a small vocabulary, or is the one that is named.
Eight completions of one, four and eight prompts; lengths are log-uniform from a fourth (prompts) or a tenth
(completions) to the whole. The last line has two rollouts that are trees of four rows: a chain, and three that leave it
at a half, at three fourths and at its end. The layouts take turns; a figure is the least of all rounds, in process CPU
seconds of one thread, and on a GPU in seconds.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from typing import Any

COMPLETIONS = 8
LAYOUTS = ("padded", "plain", "packed")
TREES = "two trees"


def policy(options: argparse.Namespace) -> Any:
    """The model to train, with our way of calling it."""
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config

    from grpo.core.train.update.head import attach_logps

    torch.manual_seed(0)
    if options.model:
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    else:
        config = Qwen2Config(
            vocab_size=8192,
            hidden_size=options.hidden,
            intermediate_size=round(options.hidden * 38 / 7),
            num_hidden_layers=options.layers,
            num_attention_heads=options.hidden // 64,
            num_key_value_heads=2,
            tie_word_embeddings=True,
        )
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    attach_logps(model, 1.0)
    if options.lora:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
    return model.to("cuda" if torch.cuda.is_available() else "cpu").train()


def batch(prompts: int, longest_prompt: int, longest: int) -> tuple[Any, Any]:
    """Ids and mask [COMPLETIONS, longest_prompt + longest] of a batch as TRL pads it."""
    import torch

    draw = torch.Generator().manual_seed(1)

    def length(most: int, part: int) -> int:
        return round(most * math.exp(-math.log(part) * float(torch.rand(1, generator=draw))))

    ids = torch.randint(3, 1000, (COMPLETIONS, longest_prompt + longest), generator=draw)
    mask = torch.ones_like(ids)
    each = COMPLETIONS // prompts
    for first in range(0, COMPLETIONS, each):
        ids[first : first + each, :longest_prompt] = ids[first, :longest_prompt].clone()
        mask[first : first + each, : longest_prompt - length(longest_prompt, 4)] = 0
    for row in range(COMPLETIONS):
        mask[row, longest_prompt + length(longest, 10) :] = 0
    return ids, mask


def trees(longest_prompt: int, longest: int) -> tuple[Any, Any]:
    """The same for rollouts of four rows each, which begin alike."""
    import torch

    draw = torch.Generator().manual_seed(2)
    ids = torch.zeros(COMPLETIONS, longest_prompt + 2 * longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    root = torch.randint(3, 1000, (longest_prompt,), generator=draw)
    for row in range(COMPLETIONS):
        if row % 4 == 0:
            kept = longest_prompt
            tokens = chain = torch.cat([root, torch.randint(3, 1000, (longest,), generator=draw)])
        else:
            kept = longest_prompt + longest * (row % 4 + 1) // 4
            tokens = torch.cat([chain[:kept], torch.randint(3, 1000, (longest // 4,), generator=draw)])
        begins = longest_prompt + longest - kept
        ids[row, begins : begins + len(tokens)] = tokens
        mask[row, begins : begins + len(tokens)] = 1
    return ids, mask


def seconds(model: Any, ids: Any, mask: Any, longest: int, layout: str, kind: str) -> float:
    """Seconds of one forward and backward pass."""
    import torch

    from grpo.core.train.update.forward import completion_logps

    cuda = torch.cuda.is_available()
    now = time.perf_counter if cuda else time.process_time
    hidden = model.config.hidden_size if layout == "packed" else None
    device = "cuda" if cuda else "cpu"
    ids, mask = ids.to(device), mask.to(device)
    model.zero_grad()
    began = now()
    if layout == "padded":
        labels = torch.full_like(ids, -100)
        labels[:, -longest - 1 : -1] = ids[:, -longest:].masked_fill(mask[:, -longest:] == 0, -100)
        logps = model(input_ids=ids, attention_mask=mask, logp_labels=labels, logp_entropy="value")["logps"]
    else:
        logps = completion_logps(model, ids, mask, longest, pack_for=hidden, entropy="value", trees=kind == TREES).logps
    logps.sum().backward()
    if cuda:
        torch.cuda.synchronize()
    return now() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder; without it, random weights")
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--hidden", type=int, default=896)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=200, help="tokens of the longest prompt")
    parser.add_argument("--completion", type=int, default=300, help="tokens of the longest completion")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    torch.set_num_threads(1)
    model = policy(options)
    print(f"{'prompts x completions':<24}" + "".join(f"{name:>9}" for name in LAYOUTS) + f"{'padded / packed':>18}")
    batches = {f"{n} x {COMPLETIONS // n}": batch(n, options.prompt, options.completion) for n in (1, 4, 8)}
    batches[TREES] = trees(options.prompt, options.completion)
    for kind, (ids, mask) in batches.items():
        least = dict.fromkeys(LAYOUTS, math.inf)
        for _ in range(options.rounds):
            for name in LAYOUTS:
                least[name] = min(least[name], seconds(model, ids, mask, options.completion, name, kind))
        figures = "".join(f"{least[name]:9.2f}" for name in LAYOUTS)
        ratio = least["padded"] / least["packed"]
        print(f"{kind:<24}{figures}{ratio:18.2f}", flush=True)


if __name__ == "__main__":
    main()
