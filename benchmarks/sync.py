"""How long does it take to hand new weights to vLLM? Beside TRL's way for LoRA: merge in place, push all, unmerge.

    python benchmarks/sync.py [--layers 3 8] [--width 128 512] [--repeats 10]
    python benchmarks/sync.py --changes FOLDER [--dtype bfloat16] [--lr 1e-6] [--repeats 10]

For models of growing size, all in one engine per size: seconds and bytes of one hand-over, without the proof (its
seconds stand beside it). With --changes: full fine-tuning of a real model, whose weights a rollout server of its own
process is sent whole and as what changed, after each step in turn. Needs vLLM; on a CPU without a GPU: make vllm.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


TEXTS = (
    "17 + 25 = 42, because 7 and 5 make 12, and 10 and 20 make 30. The answer is 42.",
    "A farmer has 12 rows of 9 trees. 12 times 9 is 108. He fells 8 of them, so 100 are left.",
)


@contextmanager
def served(folder: str, dtype: str, *more: str) -> Iterator[str]:
    """Starts `grpo serve-rollouts`, with more flags, and yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve-rollouts", "--model", folder, "--dtype", dtype, "--context", "512", "--port", str(port), *more]
    server = subprocess.Popen(
        [sys.executable, "-m", "grpo", *words], stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    with server:
        try:
            found = next((line for line in server.stdout or () if re.search("^serving ", line)), None)
            if found is None:
                raise SystemExit(f"the server ended with code {server.wait()}")
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def measure_changes(folder: str, dtype: str, lr: float, repeats: int) -> None:
    """Prints bytes and seconds of a sync of everything and of what changed, each after every step of training."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from grpo.core.rollout.engine.proven import EngineRollouts
    from grpo.core.rollout.server.capabilities import card_of_model
    from grpo.core.rollout.server.client import ServerLink
    from grpo.core.rollout.sync.delta import LastWeights
    from grpo.core.rollout.sync.payload import weight_stream
    from grpo.core.train.update.adamw import CompensatedAdamW

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = [tokenizer(text, return_tensors="pt").input_ids for text in TEXTS]
    optimizer = CompensatedAdamW(model.parameters(), lr=lr)
    wanted = card_of_model(folder, dtype=dtype, context=512, raw_logprobs=False, rank=None, targets=())
    with served(folder, dtype) as url:
        links = {
            "changes": ServerLink(url, wanted, "grpo serve-rollouts", 10.0, print, LastWeights()),
            "everything": ServerLink(url, wanted, "grpo serve-rollouts", 10.0, print),
            "broadcast": ServerLink(url, wanted, "grpo serve-rollouts", 10.0, print, broadcasts=True),
        }
        EngineRollouts(links["changes"], tolerance=0.1).sync(model)
        took: dict[str, list[tuple[float, int]]] = {way: [] for way in links}
        for step in range(repeats + 1):
            model(rows[step % len(rows)], labels=rows[step % len(rows)]).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            for way, link in links.items():
                if way != "changes":
                    link.epoch()  # takes the server over from another link
                if way == "broadcast":
                    link.put_weights(weight_stream(model))  # the group meets anew after that
                start = time.perf_counter()
                size = link.put_weights(weight_stream(model))
                took[way].append((time.perf_counter() - start, size))
            links["changes"].epoch()
            links["changes"].put_weights(weight_stream(model))  # everything, for the next changes to be made of
    count = sum(p.numel() for p in model.parameters())
    whole = statistics.median(size for _, size in took["everything"][1:])
    for way, found in took.items():
        sizes = [size for _, size in found[1:]]
        seconds = [spent for spent, _ in found[1:]]
        share = statistics.median(sizes) / whole
        print(
            f"| {count / 1e6:.1f} M | {dtype} | {way} | {statistics.median(sizes) / 2**20:.2f} | {share:.2%} "
            f"| {1e3 * min(seconds):.0f} | {1e3 * statistics.median(seconds):.0f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--layers", type=int, nargs="+", default=[3, 8])
    parser.add_argument("--width", type=int, nargs="+", default=[128, 512])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--changes", metavar="FOLDER", help="a real model, trained in full and served by a server")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--lr", type=float, default=1e-6)
    asked = parser.parse_args()
    if asked.changes:
        print("| parameters | dtype | sent | MiB | share | ms, least | ms, median |")
        print("|---|---|---|---|---|---|---|")
        measure_changes(asked.changes, asked.dtype, asked.lr, asked.repeats)
        return
    print("| parameters | training | way | ms | MiB | against TRL's way |")
    print("|---|---|---|---|---|---|")
    for layers, width in zip(asked.layers, asked.width, strict=True):
        measure(layers, width, asked.repeats)


if __name__ == "__main__":
    main()
