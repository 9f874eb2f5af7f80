"""How the passes are launched: every width has a launch that was compiled and compared, and the page shows these.

What the compiler says of them needs triton, and is compared with the page by tests/kernels/test_triton.py.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import torch

from grpo.kernels.launch import LARGEST, POINTWISE, SMALLEST, SWEEPS, Launch, fold_launch, fold_launches
from grpo.kernels.tiles import LINE, default_tile, stride_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "benchmarks" / "results" / "kernels.md").read_text(encoding="utf-8")
GPU_CODE = runpy.run_path(str(ROOT / "benchmarks" / "gpu_code.py"))


@pytest.mark.parametrize("width", [1, 2, 101, 1023, 1024, 1025, 4480, 8191, 8192, 8193, 151936, 262144])
def test_every_width_has_a_launch_that_is_compiled_in_the_tests(width: int) -> None:
    launch = fold_launch(width)
    assert launch in fold_launches()
    assert launch.in_one == (width <= LARGEST)
    assert launch.block >= width or launch == SWEEPS
    assert launch.block < 2 * width or launch.block == SMALLEST or launch == SWEEPS


def test_each_thread_has_whole_reads_of_16_bytes() -> None:
    for launch in [*fold_launches(), POINTWISE]:
        assert launch.block % (launch.warps * 32 * 4) == 0
        assert stride_of(launch.block) == launch.block
    assert [stride_of(columns) for columns in (1, 16, 17, 8192)] == [LINE, 16, 32, 8192]


def test_the_tile_of_a_gpu_is_read_once() -> None:
    assert fold_launch(default_tile(torch.device("cuda")).columns).in_one


def test_the_page_shows_what_is_launched_and_its_arithmetic_is_right() -> None:
    tables = PAGE.partition(GPU_CODE["BEGIN"])[2].partition(GPU_CODE["END"])[0].split("\n\n")
    shown, _, compared = ([line for line in table.splitlines() if line.startswith("|")][2:] for table in tables[1::2])
    launches = [*fold_launches(), POINTWISE]
    assert len(shown) == len(launches)
    tile = default_tile(torch.device("cuda"))
    for line, launch in zip(shown, launches, strict=True):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        kernel = cells[0].partition(",")[0]
        assert cells[1] == f"{launch.block} x {launch.warps}"
        assert int(cells[6]) == GPU_CODE["moved"](kernel, launch, "bf16") == (6 if launch.in_one else 10)
        assert cells[8] == f"{int(cells[6]) * tile.rows * tile.columns / 3.35e6:.0f} µs"
    for line in [*shown, *compared]:
        warps = int(re.findall(r"\d+ x (\d+)", line)[0])
        for registers, percent in re.findall(r"(\d+) \((\d+)%\)", line):
            held = min(65536 // (-(-int(registers) // 8) * 8 * 32 * warps), 64 // warps)
            assert f"{held * warps / 64:.0%}" == f"{percent}%", line
    bold = {tuple(map(int, shape)) for shape in re.findall(r"\*\*(\d+) x (\d+)\*\*", "\n".join(compared))}
    assert bold == {
        (launch.block, launch.warps) for launch in fold_launches() if launch.block > 1024 or launch == SWEEPS
    }


@pytest.mark.parametrize(
    ("registers", "stack", "loads", "fault"),
    [
        (40, 0, 4, None),
        (40, 8, 4, "spills: 8 bytes"),
        (72, 0, 4, "one program"),
        (40, 0, 0, "one by one"),
    ],
    ids=["good", "spilled", "many registers", "scalar loads"],
)
def test_code_that_would_be_slow_is_refused(registers: int, stack: int, loads: int, fault: str | None) -> None:
    variant = GPU_CODE["Variant"]("fold", Launch(8192, 16), "plain", "bf16", 90)
    found = GPU_CODE["faults"]({variant: GPU_CODE["Code"](registers, stack, loads)})
    assert len(found) == (fault is not None)
    assert fault is None or fault in found[0]


def test_every_option_dtype_and_gpu_is_compiled() -> None:
    launched = GPU_CODE["launched"]()
    assert len(launched) == len(set(launched)) == 3 * 4 * 3 * (len(fold_launches()) + 1)
