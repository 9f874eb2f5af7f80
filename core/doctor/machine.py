"""Diagnoses processors, memory, disks, the GPU, the clock and the locale."""

from __future__ import annotations

import locale
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from grpo.core.doctor.lines import Line, line_of
from grpo.core.scoring.executors import processors

GIB = 2**30
LITTLE_MEMORY = 4 * GIB  # less than the default job and its workers take with a page cache
LITTLE_DISK = 2 * GIB
LITTLE_SHARED = 2**27  # what containers get by default is half of it; processes exchange tensors there
SHARED = Path("/dev/shm")
RELEASED = 1_767_225_600  # seconds, 2026-01-01: a clock before that is wrong


def machine(folder: Path) -> Iterator[Line]:
    """Yields lines about this machine; runs would be written in the folder."""
    from grpo.core.planning.memory.budget import host_memory

    count, memory = processors(), host_memory()
    advice = "scoring and training share one processor: give the process another"
    yield line_of("processors", f"{count} for this process", advice, wrong=count < 2)
    text = f"{memory / GIB:.1f} GiB for this process"
    yield line_of("memory", text, "see what fits with: grpo plan", wrong=memory < LITTLE_MEMORY)
    yield disk("disk", folder, LITTLE_DISK, "runs are written here; free some, or use --out")
    yield disk("temporary files", Path(tempfile.gettempdir()), LITTLE_DISK // 4, "free some, or set TMPDIR")
    if SHARED.exists():
        yield disk("/dev/shm", SHARED, LITTLE_SHARED, "start the container with --shm-size=8g", whole=True)
    yield clock(time.time())
    yield encoding(sys.getfilesystemencoding(), locale.getpreferredencoding(False))


def disk(about: str, folder: Path, least: int, next_step: str, *, whole: bool = False) -> Line:
    """Returns the line about the room in a folder, or, with `whole`, about its size."""
    there = next((place for place in (folder, *folder.absolute().parents) if place.exists()), Path("/"))
    if not os.access(there, os.W_OK):
        return Line(about, "error", f"{there} cannot be written to", next_step)
    usage = shutil.disk_usage(there)
    room, what = (usage.total, "in all") if whole else (usage.free, "free")
    text = f"{room / GIB:.1f} GiB {what} in {there}"
    return line_of(about, text, next_step, wrong=room < least)


def clock(now: float) -> Line:
    """Returns the line about the time of day, in seconds since 1970."""
    text = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now))
    advice = "set the clock: certificates and file times depend on it"
    return line_of("clock", text, advice, wrong=now < RELEASED, state="error")


def encoding(files: str, texts: str) -> Line:
    """Returns the line about the encodings of file names and of texts."""
    text = f"{texts} for texts, {files} for file names"
    usual = {files.lower().replace("-", ""), texts.lower().replace("-", "")} == {"utf8"}
    return line_of("locale", text, "export LC_ALL=C.UTF-8, or PYTHONUTF8=1", wrong=not usual)


def accelerator() -> Iterator[Line]:
    """Yields lines about the GPU, or why there is none for torch."""
    import torch

    build = f"torch {torch.__version__} for {f'CUDA {torch.version.cuda}' if torch.version.cuda else 'the CPU'}"
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(number)
            text = f"{gpu.name}, {gpu.total_memory / GIB:.0f} GiB, sm_{gpu.major}{gpu.minor}; {build}"
            yield Line(f"GPU {number}", "ok", text)
        return
    driver = driver_of()
    if driver is None:
        yield Line("GPU", "ok", f"none; {build}. Training and sampling use the processors")
    elif torch.version.cuda is None:
        advice = "install a build for CUDA: https://pytorch.org/get-started/locally"
        yield Line("GPU", "error", f"{driver}, and {build} cannot use it", advice)
    else:
        advice = "compare the driver's CUDA version with torch's, and CUDA_VISIBLE_DEVICES"
        yield Line("GPU", "error", f"{driver}, and {build} does not see it", advice)


def driver_of() -> str | None:
    """Returns the first GPU and its driver as nvidia-smi reports them, None without that tool or a GPU."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    asked = [tool, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False)
    lines = done.stdout.strip().splitlines()
    return f"{lines[0]} (driver)" if done.returncode == 0 and lines else None
