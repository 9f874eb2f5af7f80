"""Runs every check and measurement that needs a GPU, in the order of their weight, each in a process with a time limit.

    python benchmarks/gpu.py [PART ...] [--out gpu-results] [--seconds 580] [--tiny]

Each part writes PART.json, anew after every figure, and PART.log. A part that fails, hangs or runs out of memory keeps
the figures that it has and stops none of the others. --seconds ends the whole: what has not run by then is "not run".
Name it in the next call. Without a GPU the parts run on this CPU with the sizes of --tiny, which tries them and
measures nothing. What each part does is in gpu_parts.py.

The checkout need not be installed: a folder `plugins` in --out then declares the built-in plugins. A part whose
library is missing is "not here". Libraries for a machine without a network can be unpacked into a folder on PYTHONPATH:

    pip download -d wheels --only-binary :all: --python-version 3.12 --no-deps datasets trl gymnasium ...
    python -m pip install --no-index --no-deps --target packages wheels/*.whl
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
import traceback
from pathlib import Path
from typing import Any

import gpu_parts
import gpu_update
from gpu_figures import Figures
from gpu_parts import FULL, PARTS, TINY, NotHere

ROOT = Path(__file__).resolve().parent.parent
BUSY = 5  # times the limits of a GPU, for a small machine that does other work meanwhile
DONE, FAILED, TIMED_OUT, NOT_HERE, NOT_RUN = "done", "failed", "timed out", "not here", "not run"


def plugins_of_checkout(folder: Path) -> list[str]:
    """Declares the built-in plugins where grpo-kit is not installed; returns what PYTHONPATH needs beside."""
    paths = [str(ROOT / "src"), str(ROOT / "benchmarks"), str(ROOT / "tests" / "support")]
    try:
        importlib.metadata.version("grpo-kit")
    except importlib.metadata.PackageNotFoundError:
        points = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]["grpo"]
        about = folder / "grpo_kit-0.dist-info"
        about.mkdir(parents=True, exist_ok=True)
        about.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: grpo-kit\nVersion: 0\n")
        lines = [f"{name} = {module}" for name, module in points.items()]
        about.joinpath("entry_points.txt").write_text("\n".join(["[grpo]", *lines, ""]))
        paths.append(str(folder))
    return paths


def in_this_process(name: str, out: Path, *, tiny: bool) -> int:
    """Runs a part here; returns an exit code."""
    figures = Figures(out / f"{name}.json")
    try:
        PARTS[name].run(figures, TINY if tiny else FULL, out / name)
    except (NotHere, ModuleNotFoundError) as error:
        figures.end(NOT_HERE, str(error))
        return 0
    except Exception as error:
        traceback.print_exc()
        figures.end(FAILED, f"{type(error).__name__}: {error}")
        return 1
    figures.end(DONE)
    return 0


def in_a_process(name: str, out: Path, seconds: float, *, tiny: bool) -> str:
    """Runs a part in a process of its own; returns how it ended."""
    command = [sys.executable, str(Path(__file__).resolve()), "--inside", name, "--out", str(out)]
    path = os.pathsep.join([*plugins_of_checkout(out / "plugins"), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    began = time.monotonic()
    with (out / f"{name}.log").open("w") as log:
        child = subprocess.Popen(
            command + ["--tiny"] * tiny, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            child.wait(seconds)
            state = FAILED
        except subprocess.TimeoutExpired:
            state = TIMED_OUT
        finally:  # also what the part itself started, and also when this process is stopped
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    figures = Figures.read(out / f"{name}.json")
    if figures.state is None:  # it was killed, by us or by the system
        figures.end(state, f"exit code {child.returncode}" if state == FAILED else f"no end within {seconds:.0f} s")
    figures.add("seconds", round(time.monotonic() - began, 1))
    return str(figures.state)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"default, in this order: {' '.join(PARTS)}")
    parser.add_argument("--out", type=Path, default=Path("gpu-results"), help="folder for the results")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="limit of the whole; default: none")
    parser.add_argument("--tiny", action="store_true", help="small sizes, as without a GPU")
    parser.add_argument("--inside", choices=[*PARTS], help=argparse.SUPPRESS)
    parser.add_argument("--update", help=argparse.SUPPRESS)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the part ends, too
    out = options.out.resolve()
    if options.update:
        print(json.dumps(gpu_update.update(**json.loads(options.update))))
        return 0
    if options.inside:
        return in_this_process(options.inside, out, tiny=options.tiny)
    if unknown := [name for name in options.parts if name not in PARTS]:
        parser.error(f"no part '{unknown[0]}'; there are: {', '.join(PARTS)}")
    if importlib.util.find_spec("torch") is None:
        parser.error("torch is not installed here")
    out.mkdir(parents=True, exist_ok=True)
    tiny = options.tiny or not gpu_parts.has_gpu()
    ends = time.monotonic() + options.seconds
    states: dict[str, Any] = {}
    for name in options.parts or PARTS:
        left = ends - time.monotonic()
        (out / f"{name}.json").unlink(missing_ok=True)
        if left < 5:
            states[name] = NOT_RUN
            Figures(out / f"{name}.json").end(NOT_RUN, "the time of --seconds was over")
        else:
            limit = PARTS[name].seconds * (BUSY if tiny else 1)
            states[name] = in_a_process(name, out, min(limit, left), tiny=tiny)
        print(f"{name:<12}{states[name]:<11}{Figures.read(out / f'{name}.json').line()}", flush=True)
    return 1 if FAILED in states.values() or TIMED_OUT in states.values() else 0


if __name__ == "__main__":
    sys.exit(main())
