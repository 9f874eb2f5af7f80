"""Measures one thing each on a GPU, or tries to with tiny sizes on a CPU; benchmarks/gpu.py runs these parts.

| part | question |
|---|---|
| machine | which card, driver and libraries are these? |
| kernels | do log-probabilities and gradients equal float64, in every mode and dtype? Do tests/kernels pass? |
| sanitizer | does compute-sanitizer find a wrong access in one case? |
| code | how many registers does a thread take, and does any spill? |
| loss | time and memory of the loss: ours in every mode and some tiles, full logits, TRL, Liger |
| learn_full, learn_lora | does the default job learn in bfloat16? |
| step_full, step_lora | how long is a step of the default job, beside plain TRL? |
| step_model | the same with LoRA and random weights of Qwen3-0.6B |
| memory | how far is `grpo plan` from the peak of an update of Qwen3-1.7B and -8B (random weights)? |
| proof | how far are sampling and training apart in each dtype, and what does `rollout.tolerance` allow? |
| context | what is the longest context that an update of an 8B model with LoRA has room for? |
| resume | does a killed and resumed run end in the same weights, bit for bit? |
| delta | how many GB/s are compared, hashed and copied for a sync of changed weights? |
| group | does a transfer group start, and how fast does it send? |
| packing | does each new shape of a packed row cost time, with cuDNN's attention and without? |
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import importlib.util
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gpu_figures import Figures
from gpu_update import config_of, device, saved_config, update_in_a_process

ROOT = Path(__file__).resolve().parent.parent
KERNEL_TESTS = ("fused", "jacobian", "logp", "recompute", "linear", "launch")
LIBRARIES = ("torch", "triton", "transformers", "trl", "peft", "accelerate", "datasets", "numpy", "liger-kernel")


class NotHere(Exception):
    """This machine lacks what the part measures."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the parts work on."""

    kernel_shapes: tuple[tuple[int, int, int], ...]  # tokens, hidden, vocabulary
    loss_shapes: tuple[str, ...]
    tiles: tuple[str, ...]
    rounds: int
    job: tuple[str, ...]  # flags of the default job
    steps: int  # of a run whose steps are measured, whose differences are, or that is killed
    step_model: tuple[str, int]  # a built-in shape, and the longest completion
    models: tuple[tuple[str, bool], ...]  # built-in shapes, and whether an adapter trains
    memory: tuple[int, int]  # sequences of a micro batch, tokens of a completion
    context_models: tuple[str, ...]
    first_context: int | None  # tokens; None: what the planner gives
    transferred: int  # bytes
    packing: tuple[int, int, int]  # hidden, layers, tokens of the longest completion


FULL = Sizes(
    kernel_shapes=((13, 24, 101), (257, 896, 151_937), (96, 4096, 128_256), (1, 1, 8193)),
    loss_shapes=("32768x4096x151936", "32768x4096x128256", "32768x1024x151936", "32768x1024x128256"),
    tiles=("1024x8192", "8192x8192", "4096x16384"),
    rounds=3,
    job=(),
    steps=8,
    step_model=("Qwen3-0.6B", 96),
    models=(("Qwen3-1.7B", False), ("Qwen3-1.7B", True), ("Qwen3-8B", True)),
    memory=(4, 1024),
    context_models=("Qwen3-8B", "Llama-3.1-8B"),
    first_context=None,
    transferred=2**30,
    packing=(896, 24, 1024),
)
TINY = Sizes(
    kernel_shapes=((13, 24, 101), (5, 16, 1025)),
    loss_shapes=("64x16x257",),
    tiles=("16x64",),
    rounds=1,
    job=("--steps", "2", "--prompts-per-step", "2", "--group-size", "2", "--eval-size", "2"),
    steps=2,
    step_model=("tiny", 4),
    models=(("tiny", False), ("tiny", True)),
    memory=(2, 8),
    context_models=("tiny",),
    first_context=64,
    transferred=2**20,
    packing=(128, 1, 24),
)


def has_gpu() -> bool:
    """Tells whether torch finds a GPU; in a process of its own, so that this one holds none of its memory."""
    question = "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", question], capture_output=True, check=False).returncode == 0


def finish_work() -> None:
    """Waits for the GPU."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_of(work: Callable[[], Any], rounds: int = 3) -> float:
    """Returns the median time of a call, its work on the GPU included."""
    times = []
    for _ in range(rounds):
        finish_work()
        began = time.perf_counter()
        work()
        finish_work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def words_of(error: BaseException) -> str:
    """Returns an error as one line."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def machine(figures: Figures, sizes: Sizes, folder: Path) -> None:
    import torch

    figures.add("python", sys.version.split()[0])
    versions: dict[str, str | None] = {}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    figures.add("libraries", versions)
    if device() == "cuda":
        card = torch.cuda.get_device_properties(0)
        about = {"name": card.name, "bytes": card.total_memory, "capability": [card.major, card.minor]}
        figures.add("card", {**about, "multiprocessors": card.multi_processor_count, "cuda": torch.version.cuda})
        query = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,power.limit", "--format=csv"]
        figures.add("nvidia-smi", subprocess.run(query, capture_output=True, text=True, check=False).stdout)


def kernels(figures: Figures, sizes: Sizes, folder: Path) -> None:
    """Raises AssertionError: a value or gradient is further from float64 than its dtype explains."""
    import torch
    from logp_problem import LOGP_TOLERANCE, TOLERANCE, Expected, error, gradients, problem

    from grpo.kernels import backend, linear_logp, naive_logp

    wrong: list[str] = []
    for shape in sizes.kernel_shapes:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for mode in ("jacobian", "fused", "recompute"):
                for softcap in (None, 4.0):
                    given = problem(
                        dtype, trained=mode != "jacobian", shape=shape, softcap=softcap, logit_scale=shape[1] ** -0.5
                    )
                    coefficients = Expected(shape[0]) if mode == "fused" else None
                    name = f"{'x'.join(map(str, shape))} {str(dtype)[6:]} {mode}{' softcap' if softcap else ''}"
                    try:
                        logp, entropy = given.run(linear_logp, mode=mode, entropy="value", coefficients=coefficients)
                        exact, exact_entropy = given.run(naive_logp)
                        pairs = zip(gradients(given, logp, None), gradients(given, exact, None), strict=True)
                        shares = {
                            "logp": error(logp, exact) / (3 * LOGP_TOLERANCE[dtype]),
                            "entropy": error(entropy, exact_entropy) / (3 * LOGP_TOLERANCE[dtype]),
                            "gradients": max(error(a, b) for a, b in pairs) / TOLERANCE[dtype],
                        }
                    except Exception as problem_of_case:  # one case must not hide the others
                        shares = {}
                        wrong.append(f"{name}: {words_of(problem_of_case)}")
                    wrong += [
                        f"{name}: {what} is {part:.1f} times its tolerance" for what, part in shares.items() if part > 1
                    ]
                    figures.add(name, shares)
                    del given
                    gc.collect()
    figures.add("passes", "triton" if device() == "cuda" and backend.HAS_TRITON else "torch")
    tests = [str(ROOT / "tests" / "kernels" / f"test_{name}.py") for name in KERNEL_TESTS]
    # Without the checkout's own settings, which need libraries that a borrowed machine may lack.
    plain = [
        "-c",
        os.devnull,
        "--rootdir",
        str(ROOT),
        "--noconftest",
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
    ]
    chosen = tests if sizes is FULL else tests[-1:]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plain, *chosen], cwd=ROOT, capture_output=True, text=True, check=False
    )
    print(done.stdout, done.stderr)
    figures.add("tests", (done.stdout.strip().splitlines() or [done.stderr])[-1])
    if done.returncode:
        wrong.append(f"tests/kernels: exit code {done.returncode}")
    figures.add("wrong", wrong)
    assert not wrong, f"{len(wrong)} wrong, the first: {wrong[0]}"


SANITIZED = """
import torch
from logp_problem import gradients, problem
from grpo.kernels import linear_logp
for trained in (False, True):
    given = problem(torch.bfloat16, trained=trained, softcap=4.0, shape=(37, 64, 8200))
    gradients(given, *given.run(linear_logp, entropy="grad" if trained else "value"))
"""


def sanitizer(figures: Figures, sizes: Sizes, folder: Path) -> None:
    """Raises AssertionError: it reports an error."""
    tool = shutil.which("compute-sanitizer")
    if tool is None or device() != "cuda":
        raise NotHere("compute-sanitizer and a GPU are needed")
    command = [tool, "--error-exitcode", "9", sys.executable, "-c", SANITIZED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    figures.add("exit code", done.returncode)
    figures.add("last line", (done.stdout.strip().splitlines() or [""])[-1])
    assert done.returncode == 0


def code(figures: Figures, sizes: Sizes, folder: Path) -> None:
    """Raises AssertionError: a variant spills."""
    import torch
    from logp_problem import gradients, problem

    from grpo.kernels import Tile, backend, linear_logp
    from grpo.kernels.launch import LARGEST

    if device() != "cuda" or not backend.HAS_TRITON:
        raise NotHere("a GPU and triton are needed")
    from grpo.kernels import triton_folds

    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for softcap in (None, 4.0):
            for width in (1024, 2048, 4096, LARGEST, 2 * LARGEST):
                given = problem(dtype, softcap=softcap, shape=(8, 64, width), logit_scale=0.125)
                gradients(given, *given.run(linear_logp, entropy="grad", mode="recompute", tile=Tile(8, width)))
    spilled = []
    for name in ("_fold_kernel", "_gradient_kernel"):
        caches = getattr(triton_folds, name).device_caches.values()
        for number, built in enumerate(kernel for cache in caches for kernel in cache[0].values()):
            built._init_handles()
            about = {"registers": built.n_regs, "spills": built.n_spills, "warps": built.metadata.num_warps}
            figures.add(f"{name} {number}", {**about, "shared bytes": built.metadata.shared})
            if built.n_spills:
                spilled.append(f"{name} {number}")
    assert not spilled, f"spilled: {', '.join(spilled)}"


def loss(figures: Figures, sizes: Sizes, folder: Path) -> None:
    import loss as sides_of_loss
    import torch

    def measured(side: str, shape: str, *, trainable: bool, tile: str | None = None) -> dict[str, float] | str:
        dtype = "bfloat16" if device() == "cuda" else "float32"
        options = argparse.Namespace(shape=shape, trainable=trainable, dtype=dtype, tile=tile)
        try:
            results = [sides_of_loss.measure(side, options) for _ in range(sizes.rounds)]
        except Exception as error:  # mostly of memory, which is a result
            gc.collect()
            torch.cuda.empty_cache()
            return words_of(error)
        return {key: statistics.median(result[key] for result in results) for key in results[0]}

    heads = {False: "frozen", True: "trainable"}
    for shape in sizes.loss_shapes:
        for trainable, head in heads.items():
            for side in ("ours", "recompute", "fused" if trainable else "jacobian", "naive", "trl"):
                here = importlib.util.find_spec(sides_of_loss.SIDES[side]) is not None
                figures.add(
                    f"{shape} {head} {side}", measured(side, shape, trainable=trainable) if here else "not installed"
                )
            for tile in sizes.tiles:
                name = f"{shape} {head} ours, tile {tile}"
                figures.add(name, measured("ours", shape, trainable=trainable, tile=tile))
    if importlib.util.find_spec("liger_kernel") is not None:  # it is compiled anew for each shape, which takes longest
        for shape in sizes.loss_shapes:
            for trainable, head in heads.items():
                figures.add(f"{shape} {head} liger", measured("liger", shape, trainable=trainable))


def grpo(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "grpo", "run", "--env", "gsm8k", "--reward", "proximity", "--quiet", *arguments]


def metrics(out: Path) -> list[dict[str, Any]]:
    from grpo.core.record.run_dir import RunDir, read_metrics

    return read_metrics(RunDir(out)) if out.is_dir() else []


def learn(lora: bool) -> Callable[[Figures, Sizes, Path], None]:
    def part(figures: Figures, sizes: Sizes, folder: Path) -> None:
        trained = folder / "run"
        shutil.rmtree(trained, ignore_errors=True)
        flags = ["--dtype", "bfloat16", "--out", str(trained), *["--lora"] * lora, *sizes.job]
        done = subprocess.run(grpo(*flags), check=False)
        assert done.returncode == 0, f"grpo run ended with exit code {done.returncode}"
        rows = metrics(trained)
        figures.add("held out", [row["held_out/accuracy"] for row in rows if "held_out/accuracy" in row])
        steps = [row["time/step"] for row in rows if "time/step" in row]
        figures.add("median step, s", statistics.median(steps))
        figures.add("tokens a second", statistics.median(row.get("time/tokens_per_second", 0.0) for row in rows[1:]))

    return part


def step(lora: bool) -> Callable[[Figures, Sizes, Path], None]:
    def part(figures: Figures, sizes: Sizes, folder: Path) -> None:
        small = ["--prompts", "1", "--max-completion-length", "4"] if sizes is TINY else []
        compare_steps(figures, sizes.steps // 2, [*["--lora"] * lora, *small])

    return part


def step_model(figures: Figures, sizes: Sizes, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    shape, completion = sizes.step_model
    config = saved_config(shape, folder)
    with torch.device(device()):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    del model
    gc.collect()
    try:
        job = ["--model", str(folder), "--dataset", "embedded", "--max-completion-length", str(completion)]
        compare_steps(figures, 2, ["--lora", *job])
    finally:
        shutil.rmtree(folder)


def compare_steps(figures: Figures, steps: int, arguments: list[str]) -> None:
    """Measures some steps of ours and of plain TRL, with the attention of cuDNN and, first, without."""
    import step_time

    given = ["--steps", str(steps + step_time.WARMUP_STEPS), "--dtype", "bfloat16", *arguments]
    for side in ("grpo", step_time.TRL_WITHOUT_PLANS, step_time.TRL):
        measured, mib = step_time.measure(side, given)
        about = {"s": measured.seconds, "sampling, s": measured.sampling, "update, s": measured.update}
        figures.add(side, {**about, "peak MiB": mib})


def memory(figures: Figures, sizes: Sizes, folder: Path) -> None:
    micro_batch, completion = sizes.memory
    for model, lora in sizes.models:
        for checkpointing in ("none", "full"):
            settings = {"model": model, "lora": lora, "micro_batch": micro_batch, "completion": completion, "steps": 2}
            name = f"{model} {'lora' if lora else 'full'}, checkpointing {checkpointing}"
            figures.add(name, update_in_a_process(**settings, checkpointing=checkpointing, out=str(folder)))


def proof(figures: Figures, sizes: Sizes, folder: Path) -> None:
    from grpo.core.config.defaults import TOLERANCE

    for dtype in ("float32", "bfloat16"):
        for lora in (False, True):
            name, out = f"{dtype} {'lora' if lora else 'full'}", folder / f"{dtype}-{lora}"
            shutil.rmtree(out, ignore_errors=True)
            flags = [*sizes.job, "--steps", str(sizes.steps), "--eval-size", "0", "--dtype", dtype, "--out", str(out)]
            done = subprocess.run(grpo(*flags, *["--lora"] * lora), check=False)
            prefix = "sampling/sampling_logp_difference/"
            differences = [(row[f"{prefix}mean"], row[f"{prefix}max"]) for row in metrics(out) if f"{prefix}max" in row]
            means, largest = zip(*differences, strict=True) if differences else ((), ())
            about = {"means": means, "largest": largest, "tolerance of the mean": TOLERANCE[dtype]}
            figures.add(name, {**about, "exit code": done.returncode})


def context(figures: Figures, sizes: Sizes, folder: Path) -> None:
    from grpo.core.config.sections import LoraSection
    from grpo.core.planning.memory.budget import Job, largest_context, this_device
    from grpo.core.planning.memory.estimate import shape

    for model in sizes.context_models:
        dtype = "bfloat16" if device() == "cuda" else "float32"
        counted = shape(config_of(model), dtype, LoraSection(enabled=True), device=device())
        planned = largest_context(counted, Job(context=1, share=1), this_device(), 2**20)
        figures.add(f"{model}, planned tokens", planned)
        longest, tokens, growth = 0, sizes.first_context or round(0.8 * planned), 1.25 if sizes is FULL else 2
        while tokens <= (2 * sizes.first_context if sizes.first_context else 2**20):
            settings = {"model": model, "lora": True, "micro_batch": 1, "completion": tokens, "steps": 1}
            result = update_in_a_process(**settings, checkpointing="offload", out=str(folder))
            figures.add(f"{model}, completion of {tokens} tokens", result)
            if isinstance(result, str):
                break
            longest, tokens = tokens, round(growth * tokens)
        figures.add(f"{model}, longest completion", longest)


def resume(figures: Figures, sizes: Sizes, folder: Path) -> None:
    """Raises AssertionError: the weights differ."""
    import torch
    from safetensors.torch import load_file

    whole, killed = folder / "whole", folder / "killed"
    for out in (whole, killed):
        shutil.rmtree(out, ignore_errors=True)
    flags = [
        *sizes.job,
        "--steps",
        str(2 * sizes.steps),
        "--save-every",
        "1",
        "--eval-size",
        "0",
        "--dtype",
        "bfloat16",
    ]
    subprocess.run(grpo(*flags, "--out", str(whole)), check=True)
    child = subprocess.Popen(grpo(*flags, "--out", str(killed)))
    while child.poll() is None and len(metrics(killed)) < sizes.steps:
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    figures.add("killed after step", len(metrics(killed)))
    child.wait()
    subprocess.run([sys.executable, "-m", "grpo", "run", "--quiet", "--resume", str(killed)], check=True)
    first, second = (load_file(out / "model" / "model.safetensors") for out in (whole, killed))
    differing = [name for name in first if not torch.equal(first[name], second[name])]
    largest = max((float((first[name] - second[name]).abs().max()) for name in differing), default=0.0)
    figures.add("tensors that differ", len(differing))
    figures.add("largest difference", largest)
    assert not differing, f"{len(differing)} tensors differ, by up to {largest:g}"


def delta(figures: Figures, sizes: Sizes, folder: Path) -> None:
    import torch

    from grpo.core.rollout.sync.changes import applied, changes_between
    from grpo.core.rollout.sync.delta import digest_of, whole_of

    there = torch.randn(sizes.transferred // 2, dtype=torch.bfloat16, device=device())
    old = there.cpu()
    gigabytes = old.nbytes / 1e9
    figures.add("gigabytes", gigabytes)
    figures.add("copied to the host and hashed, GB/s", gigabytes / seconds_of(lambda: whole_of("weight", there)))
    figures.add("hashed, GB/s", gigabytes / seconds_of(lambda: digest_of(old)))
    for share in (0.001, 0.01):
        new = old.clone()
        places = torch.randperm(len(old))[: max(1, round(share * len(old)))]
        new[places] += 1
        changes = changes_between(old, new)
        assert changes is not None
        assert torch.equal(applied(old, changes), new)
        speeds = {
            "compared, GB/s": gigabytes / seconds_of(partial(changes_between, old, new)),
            "applied, GB/s": gigabytes / seconds_of(partial(applied, old, changes)),
            "bytes sent, share": changes.bytes / old.nbytes,
        }
        figures.add(f"{share:.1%} changed", speeds)


def group(figures: Figures, sizes: Sizes, folder: Path) -> None:
    import torch

    from grpo.core.rollout.sync.group import OpenMeeting

    backend: Any = "nccl" if device() == "cuda" else "gloo"
    figures.add("backend", backend)
    began = time.perf_counter()
    joined = OpenMeeting("127.0.0.1", 1, backend).join()
    try:
        weights = torch.randn(sizes.transferred // 2, dtype=torch.bfloat16, device=device())
        joined.send(weights)  # the first collective connects
        finish_work()
        figures.add("seconds to start", time.perf_counter() - began)
        figures.add("GB/s", weights.nbytes / 1e9 / seconds_of(lambda: joined.send(weights)))
    finally:
        joined.close()


def packing(figures: Figures, sizes: Sizes, folder: Path) -> None:
    import packing as layouts
    import torch

    hidden, layers, longest = sizes.packing
    options = argparse.Namespace(model=None, hidden=hidden, layers=layers, lora=True)
    model = layouts.policy(options)
    if device() == "cuda":
        model = model.to(torch.bfloat16)
    ids, mask = layouts.batch(1, longest, longest)
    for number, attention in enumerate(("torch's", "cuDNN's")):
        torch.backends.cuda.enable_cudnn_sdp(attention == "cuDNN's")
        for layout in layouts.LAYOUTS:
            layouts.seconds(model, ids, mask, longest, layout, "")  # starts the libraries
        shorter = longest - 3 * (number + 1)  # a shape that was not there before
        new, its_mask = layouts.batch(1, longest, shorter)
        for layout in layouts.LAYOUTS:
            first, *again = (layouts.seconds(model, new, its_mask, shorter, layout, "") for _ in range(3))
            figures.add(f"{layout}, {attention} attention", {"new shape, s": first, "again, s": min(again)})


@dataclass(frozen=True, slots=True)
class Part:
    """A part and the most seconds that it may take."""

    run: Callable[[Figures, Sizes, Path], None]
    seconds: float


PARTS = {
    "machine": Part(machine, 60),
    "kernels": Part(kernels, 150),
    "sanitizer": Part(sanitizer, 60),
    "code": Part(code, 60),
    "loss": Part(loss, 200),
    "learn_full": Part(learn(lora=False), 150),
    "learn_lora": Part(learn(lora=True), 150),
    "step_full": Part(step(lora=False), 90),
    "step_lora": Part(step(lora=True), 90),
    "step_model": Part(step_model, 120),
    "memory": Part(memory, 180),
    "proof": Part(proof, 120),
    "context": Part(context, 240),
    "resume": Part(resume, 120),
    "delta": Part(delta, 60),
    "group": Part(group, 60),
    "packing": Part(packing, 60),
}
