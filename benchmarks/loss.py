"""Time and memory of the GRPO loss on hidden states: ours beside full logits, torch.compile, TRL and Liger, in one run.

    python benchmarks/loss.py [--shape 4096x512x32000] [--trainable] [--dtype bfloat16] [--tile 1024x8192]

Every side computes the same on-policy GRPO loss of N tokens in 8 completions, forward and backward, from hidden states
[N, H] and a head [V, H] (frozen unless --trainable). Each measurement runs in a fresh process and the sides take turns.
On CPU the time is process CPU time, with one thread, so that other work on the machine counts as little as possible;
the peak is resident memory above what the inputs take. On CUDA the time is by events and the peak by the allocator.
The error is that of dL/dhidden against float64, in the Euclidean norm over the first rows. ours needs torch alone (with
triton on CUDA); a side whose package is missing is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

COMPLETIONS = 8
CHECKED_ROWS = 32  # at most
SHAPES = ("4096x512x32000", "2048x896x151936")
MODES = ("jacobian", "fused", "recompute")  # of ours, which chooses one of them
SIDES = {
    "ours": "torch",
    **dict.fromkeys(MODES, "torch"),
    "naive": "torch",
    "compile": "torch",
    "trl": "trl",
    "liger": "liger_kernel",
}

Loss = Callable[[Any, Any, Any, Any], Any]


def from_logps(logps: Any, advantages: Any) -> Any:
    """The on-policy GRPO loss of [B, T] log-probabilities; the ratio is 1 and carries the gradient."""
    return -((logps - logps.detach()).exp() * advantages[:, None]).mean()


def ours(mode: Any = "auto", tile: str | None = None) -> Loss:
    """Our loss, in a mode of the kernel and with a tile of ROWSxCOLUMNS logits."""
    from grpo.kernels import linear_logp
    from grpo.kernels.tiles import Tile

    size = Tile(*map(int, tile.split("x"))) if tile else None

    def loss(hidden: Any, weight: Any, target: Any, advantages: Any) -> Any:
        # What this loss gives each token is known beforehand, as in the trainer; only a trainable head makes use of it.
        known = -advantages.repeat_interleave(len(target) // COMPLETIONS) / len(target)
        logps, _ = linear_logp(
            hidden, weight, target, mode=mode, tile=size, coefficients=lambda logps, rows: known[rows]
        )
        return from_logps(logps.view(COMPLETIONS, -1), advantages)

    return loss


def naive(hidden: Any, weight: Any, target: Any, advantages: Any) -> Any:
    import torch

    logps = torch.log_softmax((hidden @ weight.t()).float(), dim=-1).gather(-1, target[:, None])[:, 0]
    return from_logps(logps.view(COMPLETIONS, -1), advantages)


def compiled() -> Loss:
    import torch

    return torch.compile(naive)


def trl(hidden: Any, weight: Any, target: Any, advantages: Any) -> Any:
    from trl.kernels import ChunkedLogProbFunction

    logps = ChunkedLogProbFunction.apply(hidden, weight, None, target, 1.0, 32768, None, 1.0, ())[0]
    return from_logps(logps.view(COMPLETIONS, -1), advantages)


def liger() -> Loss:
    import torch
    from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss

    on_gpu = torch.cuda.is_available()
    layer = LigerFusedLinearGRPOLoss(beta=0.0, use_ref_model=False, loss_type="grpo", compiled=on_gpu)

    def loss(hidden: Any, weight: Any, target: Any, advantages: Any) -> Any:
        rows = hidden.view(COMPLETIONS, -1, hidden.shape[-1])
        tokens = target.view(COMPLETIONS, -1)
        return layer(rows, weight, tokens, torch.ones_like(tokens), advantages)[0]

    return loss


def loss_of(side: str, tile: str | None) -> Loss:
    if side == "ours" or side in MODES:
        return ours("auto" if side == "ours" else side, tile)
    return {"naive": lambda: naive, "compile": compiled, "trl": lambda: trl, "liger": liger}[side]()


def resident(key: str) -> int:
    """Returns a line of /proc/self/status in bytes: VmRSS is the memory in use, VmHWM its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(key))


def gradient_error(hidden: Any, weight: Any, target: Any, advantages: Any) -> float:
    """Compares dL/dhidden of the first rows with float64."""
    import torch

    rows = min(CHECKED_ROWS, len(target) // COMPLETIONS)  # of the first completion
    some = hidden.detach()[:rows].double().requires_grad_()
    logps = torch.log_softmax(some @ weight.detach().double().t(), dim=-1)
    logps = logps.gather(-1, target[:rows, None])[:, 0]
    (-logps.sum() * advantages[0].double() / len(target)).backward()
    ours = hidden.grad[:rows].double()
    return float((ours - some.grad).norm() / some.grad.norm())


def measure(side: str, options: argparse.Namespace) -> dict[str, float]:
    """Runs one side here, warmed up; returns seconds, peak MiB and gradient error."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    torch.manual_seed(0)
    count, width, vocabulary = (int(part) for part in options.shape.split("x"))
    dtype = getattr(torch, options.dtype)
    weight = (torch.randn(vocabulary, width, device=device) * width**-0.5).to(dtype).requires_grad_(options.trainable)
    hidden = torch.randn(count, width, device=device).to(dtype).requires_grad_()
    target = torch.randint(0, vocabulary, (count,), device=device)
    advantages = torch.linspace(1.5, -1.5, COMPLETIONS, device=device)
    loss = loss_of(side, options.tile)

    def run(rows: int) -> None:
        loss(hidden[:rows], weight, target[:rows], advantages).backward()

    run(count if side == "compile" or device == "cuda" else 8 * COMPLETIONS)
    hidden.grad = weight.grad = None
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run(count)
        end.record()
        torch.cuda.synchronize()
        seconds, peak = start.elapsed_time(end) / 1000, torch.cuda.max_memory_allocated() - before
    else:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        before, begin = resident("VmRSS"), time.process_time()
        run(count)
        seconds, peak = time.process_time() - begin, resident("VmHWM") - before
    error = gradient_error(hidden, weight, target, advantages)
    return {"seconds": seconds, "mib": peak / 2**20, "error": error}


def in_a_process(side: str, shape: str) -> dict[str, float] | None:
    arguments = [sys.executable, __file__, *sys.argv[1:], "--side", side, "--shape", shape]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{side} failed: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", action="append", help="NxHxV; default: " + ", ".join(SHAPES))
    parser.add_argument("--trainable", action="store_true", help="the head has a gradient, too")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--tile", help="ROWSxCOLUMNS of logits that ours holds at a time; default: the kernel's own")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", choices=list(SIDES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if options.side:
        options.shape = options.shape[-1]
        print(json.dumps(measure(options.side, options)))
        return
    import torch

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    head = "trainable" if options.trainable else "frozen"
    print(f"{name}, torch {torch.__version__}, {options.dtype}, {head} head, load {os.getloadavg()[0]:.1f}")
    for shape in options.shape or SHAPES:
        # With a frozen head recomputing is no more than a slower way.
        left_out = {"jacobian", "fused"} if options.trainable else {*MODES}
        sides = [side for side, module in SIDES.items() if side not in left_out and importlib.util.find_spec(module)]
        measured: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for _ in range(options.rounds):
            for side in sides:
                result = in_a_process(side, shape)
                if result is not None:
                    measured[side].append(result)
        print(f"\nN x H x V = {shape}\n{'':<10}{'seconds':>10}{'x ours':>8}{'peak MiB':>10}{'x ours':>8}{'error':>10}")
        for side, results in measured.items():
            if results:
                print_side(side, results, measured["ours"])


def print_side(side: str, results: list[dict[str, float]], ours: list[dict[str, float]]) -> None:
    """Prints medians over rounds; a ratio is taken within a round and then its median."""
    pairs = list(zip(results, ours, strict=False))
    slower = statistics.median(a["seconds"] / b["seconds"] for a, b in pairs)
    larger = statistics.median(a["mib"] / b["mib"] for a, b in pairs)
    seconds, mib = (statistics.median(r[key] for r in results) for key in ("seconds", "mib"))
    print(f"{side:<10}{seconds:>10.3f}{slower:>8.2f}{mib:>10.0f}{larger:>8.1f}{results[0]['error']:>10.1e}", flush=True)


if __name__ == "__main__":
    main()
