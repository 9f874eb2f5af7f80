"""Compiles the Triton passes for GPUs that are not here and reports registers, spills, occupancy and bytes moved.

    python benchmarks/gpu_code.py [--write PAGE | --check PAGE]   # the page is benchmarks/results/kernels.md

It compiles every variant that `linear_logp` can launch, ahead of time, for sm_80, sm_90 and sm_100, reads the registers
from the machine code, and fails where a variant spills, leaves no room for TWO programs on a multiprocessor or reads
less than 16 bytes at a time. Then it compares other launches (CANDIDATES) and prints the tables, or writes them into
the page; --check only compares it with what is launched. No GPU is needed and none is used: nothing here is a time.
It needs triton, whose release the tables name, and about a minute on two cores.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from grpo.kernels.launch import LARGEST, POINTWISE, Launch, fold_launches

CAPABILITIES = (80, 90, 100)
BANDWIDTHS = {"A100": 2.04e12, "H100": 3.35e12, "B200": 8.0e12}  # bytes a second, of the 80 GB, SXM and SXM models
TILE = (4096, 8192)  # rows and columns of logits: `default_tile` on a GPU
REGISTERS, WARPS, PROGRAMS = 65536, 64, 32  # that a multiprocessor holds at once, for each of CAPABILITIES
TWO = 2
OPTIONS = {"plain": (False, False), "entropy": (False, True), "capped": (True, False), "both": (True, True)}
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}  # written per logit
CANDIDATES = [
    *(Launch(block, warps) for block in (2048, 4096, 8192) for warps in (4, 8, 16, 32)),
    *(Launch(block, warps, in_one=False) for block in (1024, 2048, 4096) for warps in (4, 8, 16)),
]
BEGIN, END = "<!-- made by benchmarks/gpu_code.py -->\n", "<!-- end -->\n"


@dataclass(frozen=True, slots=True)
class Variant:
    """What a kernel is compiled for: "fold" or "gradient", one of OPTIONS, what it writes, and the GPU."""

    kernel: str
    launch: Launch
    options: str
    written: str
    capability: int


@dataclass(frozen=True, slots=True)
class Code:
    """What was made of a variant.

    Attributes:
        registers: of a thread.
        stack: bytes of a thread, where spilled registers go.
        loads: instructions in a thread that each read 16 bytes, four logits.
    """

    registers: int
    stack: int
    loads: int


def launched() -> list[Variant]:
    """Returns every variant that the passes launch."""
    folds = product(["fold"], fold_launches(), OPTIONS, BYTES, CAPABILITIES)
    gradients = product(["gradient"], [POINTWISE], OPTIONS, BYTES, CAPABILITIES)
    return [Variant(*each) for each in (*folds, *gradients)]


def candidates() -> list[Variant]:
    """Returns what else `fold` could be launched with, and what it is, in bfloat16 on sm_90."""
    return [Variant("fold", launch, options, "bf16", 90) for launch in CANDIDATES for options in OPTIONS]


def programs(code: Code, launch: Launch) -> int:
    """How many programs a multiprocessor holds; registers are handed out in steps of 8 a thread."""
    taken = -(-code.registers // 8) * 8 * 32 * launch.warps
    return min(REGISTERS // taken, WARPS // launch.warps, PROGRAMS)


def occupancy(code: Code, launch: Launch) -> float:
    """The share of a multiprocessor's warps that are there at once."""
    return programs(code, launch) * launch.warps / WARPS


def read(kernel: str, launch: Launch) -> int:
    """Bytes read per logit; a row that does not stay in registers is read twice."""
    return 4 if kernel == "gradient" or launch.in_one else 8


def moved(kernel: str, launch: Launch, written: str) -> int:
    """Bytes read and written per logit."""
    return read(kernel, launch) + BYTES[written]


def compiled(variant: Variant) -> Code:
    """Compiles one variant as `triton_folds` launches it, and reads what the machine code needs."""
    warnings.simplefilter("ignore")  # of Triton, about a default of its next release
    import triton.backends.nvidia
    from triton import compile as build
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from grpo.kernels import triton_folds

    kernel = {"fold": triton_folds._fold_kernel, "gradient": triton_folds._gradient_kernel}[variant.kernel]
    capped, entropy = OPTIONS[variant.options]
    constants = {
        "is_capped": capped,
        "with_entropy": entropy,
        "in_one": variant.launch.in_one,
        "block": variant.launch.block,
    }
    types = {"out_ptr": f"*{variant.written}", "target_ptr": "*i64"}
    types |= dict.fromkeys(("stride", "written", "width", "first"), "i32") | dict.fromkeys(constants, "constexpr")
    signature = {
        name: types.get(name, "*fp32" if name.endswith("_ptr") else "fp32")
        for name in (parameter.name for parameter in kernel.params)
    }
    # As at a launch: what may be specialised on is a multiple of 16, in bytes or as a number.
    aligned = [
        parameter.num
        for parameter in kernel.params
        if (parameter.name.endswith("_ptr") and not parameter.do_not_specialize_on_alignment)
        or (signature[parameter.name] == "i32" and not parameter.do_not_specialize)
    ]
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={name: value for name, value in constants.items() if name in signature},
        attrs={(number,): [["tt.divisibility", 16]] for number in aligned},
    )
    target = GPUTarget("cuda", variant.capability, 32)
    built = build(source, target=target, options={"num_warps": variant.launch.warps}).asm
    tool = Path(triton.backends.nvidia.__file__).parent / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(built["cubin"])
        file.flush()
        account = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", account)
    if found is None:
        raise RuntimeError(f"{tool} says nothing of registers: {account}")
    return Code(int(found[1]), int(found[2]), built["ptx"].count("ld.global.v4.b32"))


def all_compiled(variants: Iterable[Variant]) -> dict[Variant, Code]:
    """Compiles variants in as many processes as there are processors."""
    variants = list(dict.fromkeys(variants))
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            return dict(zip(variants, pool.map(compiled, variants, chunksize=4), strict=True))


def expected_loads(variant: Variant) -> int:
    """How many loads a thread needs for its logits when each reads four."""
    return read(variant.kernel, variant.launch) // 4 * variant.launch.block // (variant.launch.warps * 32 * 4)


def faults(codes: dict[Variant, Code]) -> list[str]:
    """What is wrong with compiled variants, in words."""
    found = []
    for variant, code in codes.items():
        if code.stack:
            found.append(f"{variant} spills: {code.stack} bytes of stack a thread")
        if programs(code, variant.launch) < TWO:
            found.append(f"{variant} needs {code.registers} registers a thread: a multiprocessor holds one program")
        if code.loads != expected_loads(variant):
            found.append(f"{variant} reads its logits one by one, and not 16 bytes at a time")
    return found


def launched_tables(codes: dict[Variant, Code]) -> str:
    """Returns the tables of what is launched, as benchmarks/results/kernels.md shows them."""
    chosen = [("fold", launch) for launch in fold_launches()] + [("gradient", POINTWISE)]
    lines = [
        f"What is launched, in bfloat16 on sm_90, compiled by Triton {importlib.metadata.version('triton')}:",
        "",
        "| pass | block x warps | registers: plain | with entropy | capped | both | bytes per logit "
        f"| {' | '.join(f'{name}, at least' for name in BANDWIDTHS)} |",
        "|---|---|---|---|---|---|---|" + "---|" * len(BANDWIDTHS),
    ]
    for kernel, launch in chosen:
        cells = [_cell(codes[Variant(kernel, launch, options, "bf16", 90)], launch) for options in OPTIONS]
        size = moved(kernel, launch, "bf16")
        floor = [f"{size * TILE[0] * TILE[1] / speed * 1e6:.0f} µs" for speed in BANDWIDTHS.values()]
        name = kernel if launch.in_one else f"{kernel}, rows above {LARGEST:,}"
        lines.append(f"| {' | '.join([name, _shape(launch), *cells, str(size), *floor])} |")
    lines += [
        "",
        "The worst of all variants, whatever they write (float32, bfloat16, float16):",
        "",
        f"| pass | block x warps | {' | '.join(f'sm_{capability}' for capability in CAPABILITIES)} |",
        "|---|---|" + "---|" * len(CAPABILITIES),
    ]
    for kernel, launch in chosen:
        worst = [
            max(
                (code for variant, code in codes.items() if _is(variant, kernel, launch, capability)),
                key=lambda code: code.registers,
            )
            for capability in CAPABILITIES
        ]
        lines.append(f"| {kernel} | {_shape(launch)} | {' | '.join(_cell(code, launch) for code in worst)} |")
    return "\n".join(lines) + "\n"


def candidates_table(codes: dict[Variant, Code]) -> str:
    """Returns the table of what else could be launched."""
    lines = [
        "What else `fold` could be launched with, in bfloat16 on sm_90; what is launched stands in bold:",
        "",
        "| block x warps | reads | plain | with entropy | capped | both |",
        "|---|---|---|---|---|---|",
    ]
    for launch in CANDIDATES:
        cells = [_cell(codes[Variant("fold", launch, options, "bf16", 90)], launch) for options in OPTIONS]
        mark = "**" if launch in fold_launches() else ""
        lines.append(f"| {mark}{_shape(launch)}{mark} | {read('fold', launch) // 4} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _is(variant: Variant, kernel: str, launch: Launch, capability: int) -> bool:
    return (variant.kernel, variant.launch, variant.capability) == (kernel, launch, capability)


def _shape(launch: Launch) -> str:
    return f"{launch.block} x {launch.warps}"


def _cell(code: Code, launch: Launch) -> str:
    spilled = f", {code.stack} bytes spilled" if code.stack else ""
    return f"{code.registers}{spilled} ({occupancy(code, launch):.0%})"


def page_with(page: str, text: str) -> str:
    """Returns a page with the tables between its two marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no lines {BEGIN.strip()} and {END.strip()} for the tables to stand between")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main(arguments: list[str] | None = None) -> str | None:
    """Prints, writes or compares the tables; returns what is wrong, for the shell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--write", type=Path, metavar="PAGE")
    where.add_argument("--check", type=Path, metavar="PAGE")
    options = parser.parse_args(arguments)
    codes = all_compiled(launched())
    wrong, text = faults(codes), launched_tables(codes)
    if options.check:
        if text not in options.check.read_text(encoding="utf-8"):
            again = f"python benchmarks/gpu_code.py --write {options.check}"
            wrong.append(
                f"{options.check} has not the tables of what is launched now; make them with: {again}\n\n{text}"
            )
        return "\n".join(wrong) or None
    text += "\n" + candidates_table(all_compiled(candidates()))
    print(text)
    if options.write:
        page = options.write.read_text(encoding="utf-8")
        options.write.write_text(page_with(page, text), encoding="utf-8")
    return "\n".join(wrong) or None


if __name__ == "__main__":
    sys.exit(main())
