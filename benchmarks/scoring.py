"""How fast rewards are scored: rows a second beside the bare function in a loop and beside TRL's way of calling.

Run it on a quiet machine: python benchmarks/scoring.py [--rows 4096] [--repeats 5]. TRL's way is what its trainer does
with a synchronous reward: columns to lists, one call with all of them, None to NaN, a float32 tensor.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import time
from collections.abc import Callable
from typing import Any

from grpo import Completion, RewardSpec, reward
from grpo.core.score import Scorer
from grpo.core.score_tally import table
from grpo.plugins.binding import BoundReward
from grpo.plugins.host import Host

_ALGEBRA_ROWS = 128
_LAYOUT = re.compile(r"\A\s*<think>.+?</think>.*?####\s*-?[\d,.]+\s*\Z", re.DOTALL)


@reward(version=1, isolation="inline", range=(0.0, 1.0))
def equal(completion: str, answer: str) -> float:
    """About the cheapest reward there is."""
    return 1.0 if completion.rpartition("####")[2].strip() == answer else 0.0


@reward(version=1, isolation="inline", range=(0.0, 1.0))
def tagged(completion: str) -> float:
    """A cheap format reward: one regular expression over the text."""
    return 1.0 if _LAYOUT.search(completion) else 0.0


@reward(version=1, isolation="process", range=(0.0, 1.0), timeout=60.0)
def algebra(completion: str, answer: str) -> float:
    """A reward that computes: are two expressions equal after simplification?"""
    import sympy  # type: ignore[import-untyped]
    from sympy.core.cache import clear_cache  # type: ignore[import-untyped]

    clear_cache()  # or every repeat after the first would only look its answers up
    return float(sympy.simplify(sympy.sympify(completion) - sympy.sympify(answer)) == 0)


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    words = "<think>She sells the eggs that are left, so she makes {n} dollars a day. "
    texts = [words.format(n=n) + f"</think>\n#### {n}" for n in range(arguments.rows)]
    cheap = [Completion(text, row={"answer": str(n)}) for n, text in enumerate(texts)]
    sums = [
        Completion(f"(x + {n})**5 - (x - {n})**5", row={"answer": f"expand((x + {n})**5 - (x - {n})**5)"})
        for n in range(_ALGEBRA_ROWS)
    ]
    host = Host.discover()
    work = [
        (BoundReward(equal, "benchmark"), cheap),
        (BoundReward(tagged, "benchmark"), cheap),
        (host.reward("gsm8k.correctness"), cheap),
        (host.reward("proximity"), cheap),
        (BoundReward(algebra, "benchmark", timeout=60.0), sums),
    ]
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} processors")
    rows = [measure(plugin, completions, arguments.repeats) for plugin, completions in work]
    heading = ("reward", "isolation", "rows", "bare loop/s", "TRL's way/s", "scorer/s", "bare loop = 1")
    print(table(heading, rows))


def measure(plugin: BoundReward, completions: list[Completion], repeats: int) -> tuple[str, ...]:
    """Returns the row of one reward: rows a second each way, the best of the repeats."""
    with Scorer([plugin]) as scorer:
        scorer.score(completions[:8])
        ways: list[Callable[[], Any]] = [
            lambda: bare_loop(plugin, completions),
            lambda: trl_way(plugin, completions),
            lambda: scorer.score(completions),
        ]
        seconds = [float("inf")] * len(ways)
        for _ in range(repeats):  # in turns, so that a busy moment hits every way alike
            for index, way in enumerate(ways):
                started = time.perf_counter()
                way()
                seconds[index] = min(seconds[index], time.perf_counter() - started)
        assert not scorer.first_failure, scorer.first_failure
    speeds = [f"{len(completions) / each:,.0f}" for each in seconds]
    ratio = f"{seconds[0] / seconds[2]:.2f}"
    return plugin.name, plugin.spec.isolation, str(len(completions)), *speeds, ratio


def bare_loop(plugin: BoundReward, completions: list[Completion]) -> list[Any]:
    """Calls the function itself for each row."""
    function, options, names = plugin.spec.function, plugin.options, [column.name for column in plugin.spec.columns]
    rows = [(completion.text, *(completion.row[name] for name in names)) for completion in completions]
    return [function(*row, **options) for row in rows]


def trl_way(plugin: BoundReward, completions: list[Completion]) -> Any:
    """Calls the reward as TRL's trainer calls one that was written for it."""
    import torch

    rows = [{"prompt": "", **completion.row} for completion in completions]
    names = [name for name in rows[0] if name != "prompt"]
    columns = {name: [row[name] for row in rows] for name in names}
    values = batch(plugin.spec, plugin.options, [completion.text for completion in completions], **columns)
    return torch.tensor([value if value is not None else float("nan") for value in values], dtype=torch.float32)


def batch(spec: RewardSpec, options: Any, completions: list[str], **columns: list[Any]) -> list[Any]:
    """What an author would write to give a reward TRL's shape."""
    read = [columns[column.name] for column in spec.columns]
    return [spec.function(*row, **options) for row in zip(completions, *read, strict=True)]


if __name__ == "__main__":
    main()
