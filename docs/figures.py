"""Writes measured figures into README.md and benchmarks/results/speed.md, from benchmarks/results.toml.

    python docs/figures.py

A figure stands between <!-- figure NAME --> and <!-- end -->; what is between them is written anew.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results.toml"
PAGES = (ROOT / "README.md", ROOT / "benchmarks" / "results" / "speed.md")
FIGURE = re.compile(r"(<!-- figure (?P<name>\S+) -->).*?(<!-- end -->)", re.DOTALL)

Result = Mapping[str, Any]


def with_figures(page: str, results: Mapping[str, Mapping[str, Result]]) -> str:
    """Returns a page with its figures as they were measured.

    Raises:
        KeyError: it names a figure that there is not.
    """
    texts = _texts(results)
    return FIGURE.sub(lambda found: f"{found[1]}{texts[found['name']]}{found[3]}", page)


def results() -> dict[str, Any]:
    """Reads what was measured."""
    return tomllib.loads(RESULTS.read_text(encoding="utf-8"))


def _texts(results: Mapping[str, Mapping[str, Result]]) -> dict[str, str]:
    """Returns the name of each figure and its text."""
    steps, learning = results["step"], results["learning"]
    demo, sums = learning["default"], [learning[name] for name in ("sums_lora", "sums_full")]
    after = [share for one in sums for share in one["after"]]
    mini, chores = learning["mini_swe_agent"], learning["chores"]
    return {
        "default": _short(steps["default_full"], steps["default_lora"]),
        "chat": _short(steps["chat_full"], steps["chat_lora"]),
        "demo": f"from {demo['before']:.0%} to {math.floor(100 * min(demo['after']))}%",
        "sums": f"{sums[0]['before']:.0%} to {_between(after)}",
        "mini": f"{mini['before']:.0%} to {_between(mini['after'])}",
        "chores": _between(chores["after"]),
        **{f"step.{name}": _long(one) for name, one in steps.items()},
    }


def _between(shares: Sequence[float]) -> str:
    return f"between {100 * min(shares):.0f} and {100 * max(shares):.0f}%"


def _ratios(step: Result) -> list[float]:
    return [theirs / ours for ours, theirs in zip(step["seconds"], step["trl_seconds"], strict=True)]


def _short(full: Result, lora: Result) -> str:
    """Speed and memory side by side: those of full fine-tuning, and those of LoRA."""
    (fast, small), (other, less) = ((median(_ratios(one)), one["mib"] / one["trl_mib"]) for one in (full, lora))
    return f"{fast:.1f} times as fast at {small:.0%} of the memory (LoRA: {other:.1f} times, {less:.0%})"


def _long(step: Result) -> str:
    *first, last = (f"{ratio:.2f}" for ratio in _ratios(step))
    ratios = f"{', '.join(first)} and {last}" if first else last
    pairs = ", ".join(f"{a:g} and {b:g} s" for a, b in zip(step["seconds"], step["trl_seconds"], strict=True))
    return f"{ratios} times as fast ({pairs}), {step['mib']} MiB beside {step['trl_mib']}"


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_figures(page.read_text(encoding="utf-8"), results()), encoding="utf-8")
