"""How fast rewards are scored: rows a second beside the bare function in a loop, TRL's way of calling and verifiers'.

    python benchmarks/scoring.py [--rows 4096] [--repeats 5] [--cheap]

Inline rewards are measured in processor time, which other programs change least, and those of worker processes in wall
time, on a quiet machine. TRL's way is what its trainer does with a synchronous reward: columns to lists, one call with
all of them, None to NaN, a float32 tensor. verifiers' way is `Task.score` of all traces at once on one event loop, with
the function as the task's reward (its release 0.4 has no Rubric any more); it is measured where verifiers is installed,
and its traces are made beforehand. The reward `math` gets answers that take computer algebra, new ones each time, since
sympy remembers what it has simplified.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import platform
import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from grpo import Completion, RewardSpec, reward
from grpo.core.scoring.scorer import Scorer
from grpo.core.text.printable import aligned
from grpo.plugins._spec.binding import BoundReward
from grpo.plugins.host import Host

_MATH_ROWS = 256
_LAYOUT = re.compile(r"\A\s*<think>.+?</think>.*?####\s*-?[\d,.]+\s*\Z", re.DOTALL)


@reward(version=1, isolation="inline", range=(0.0, 1.0))
def equal(completion: str, answer: str) -> float:
    """About the cheapest reward there is."""
    return 1.0 if completion.rpartition("####")[2].strip() == answer else 0.0


@reward(version=1, isolation="inline", range=(0.0, 1.0))
def tagged(completion: str) -> float:
    """A cheap format reward: one regular expression over the text."""
    return 1.0 if _LAYOUT.search(completion) else 0.0


@reward(version=1, isolation="inline", range=(0.0, 1.0))
def short(completion: str) -> float:
    """A cheap reward whose scores all differ."""
    return 1.0 / (1.0 + len(completion) + hash(completion) % 1000 / 1000)


def sums(count: int, start: int) -> list[Completion]:
    """Returns right and wrong answers to be compared by computer algebra, other ones for every start."""
    forms: list[Callable[[int], tuple[str, str]]] = [
        lambda n: (f"(x + {n})(x - 3)", f"x^2 + {n - 3}x - {3 * n}"),
        lambda n: (f"\\frac{{{n}\\sqrt{{2}}}}{{2}}", f"\\frac{{{n}}}{{\\sqrt{{2}}}}"),
        lambda n: (f"{n} + \\sqrt{{3}}", f"{n} - \\sqrt{{3}}"),
        lambda n: (f"\\left({n}, \\frac{{1}}{{2}}\\right)", f"({n}, 0.5)"),
    ]
    pairs = (forms[n % len(forms)](n + 5) for n in range(start, start + count))
    return [Completion(f"So we get $\\boxed{{{text}}}$.", row={"answer": gold}) for text, gold in pairs]


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cheap", action="store_true", help="leave out the reward that computes for seconds")
    arguments = parser.parse_args()
    words = "<think>She sells the eggs that are left, so she makes {n} dollars a day. "
    texts = [words.format(n=n) + f"</think>\n#### {n}" for n in range(arguments.rows)]
    cheap = [Completion(text, row={"answer": str(n)}) for n, text in enumerate(texts)]
    host = Host.discover()
    plugins = [BoundReward(equal, "benchmark"), BoundReward(tagged, "benchmark"), BoundReward(short, "benchmark")]
    plugins += [host.reward("gsm8k.correctness"), host.reward("proximity")]
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} processors")
    rows = [measure(plugin, lambda _: cheap, arguments.repeats) for plugin in plugins]
    if not arguments.cheap:
        count = min(arguments.rows, _MATH_ROWS)
        rows.append(measure(host.reward("math"), lambda number: sums(count, number * count), arguments.repeats))
    heading = ("reward", "isolation", "rows", "bare loop/s", "TRL's way/s", "verifiers/s", "scorer/s", "bare loop = 1")
    print("\n".join(aligned([heading, *rows], right=True)))


def measure(plugin: BoundReward, make: Callable[[int], list[Completion]], repeats: int) -> tuple[str, ...]:
    """Returns the row of one reward: rows a second each way, the best of the repeats.

    Args:
        plugin: the reward.
        make: returns the completions of the nth measurement.
        repeats: how often each way is measured.
    """
    count = len(make(0))
    clock = time.process_time if plugin.spec.isolation == "inline" else time.perf_counter
    with Scorer([plugin]) as scorer:
        scorer.score(make(0)[:8])
        ways: list[Callable[[list[Completion]], Callable[[], Any]]] = [
            lambda completions: partial(bare_loop, plugin, completions),
            lambda completions: partial(trl_way, plugin, completions),
            lambda completions: partial(scorer.score, completions),
        ]
        if importlib.util.find_spec("verifiers") is not None:
            ways.append(partial(verifiers_way, plugin))
        seconds = [float("inf")] * len(ways)
        for repeat in range(repeats):  # in turns, so that a busy moment hits every way alike
            for index, way in enumerate(ways):
                call = way(make(1 + repeat * len(ways) + index))
                started = clock()
                call()
                seconds[index] = min(seconds[index], clock() - started)
        assert not scorer.first_failure, scorer.first_failure
    bare, trl, ours, *verifiers = [f"{count / each:,.0f}" for each in seconds]
    ratio = f"{seconds[0] / seconds[2]:.2f}"
    return plugin.name, plugin.spec.isolation, str(count), bare, trl, *(verifiers or ["-"]), ours, ratio


def bare_loop(plugin: BoundReward, completions: list[Completion]) -> list[Any]:
    """Calls the function itself for each row."""
    function, options = plugin.spec.function, plugin.options
    names = [column.name for column in plugin.spec.columns if column.required]
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


def verifiers_way(plugin: BoundReward, completions: list[Completion]) -> Callable[[], Any]:
    """Returns what scores the completions by verifiers: traces of a task whose reward is the function."""
    import verifiers.v1 as vf
    from verifiers.v1.trace import AgentInfo, TraceTask

    function, options = plugin.spec.function, plugin.options
    names = [column.name for column in plugin.spec.columns if column.required]

    class Data(vf.TaskData):
        answer: str

    class Scored(vf.Task[Data]):
        @vf.reward
        async def reward(self, task: Any, trace: Any) -> float:
            value = function(trace.last_reply, *(getattr(task, name) for name in names), **options)
            return float("nan") if value is None else float(value)

    agent = AgentInfo(config=vf.AgentConfig())
    pairs = []
    for completion in completions:
        task = Scored(Data(prompt="", answer=completion.row["answer"]))
        trace = vf.Trace(task=TraceTask(type="Scored", data=task.data), agent=agent, root_reply=completion.text)
        pairs.append((task, trace))

    async def score() -> None:
        await asyncio.gather(*(task.score(trace) for task, trace in pairs))

    return lambda: asyncio.run(score())


def batch(spec: RewardSpec, options: Any, completions: list[str], **columns: list[Any]) -> list[Any]:
    """What an author would write to give a reward TRL's shape."""
    read = [columns[column.name] for column in spec.columns if column.required]
    return [spec.function(*row, **options) for row in zip(completions, *read, strict=True)]


if __name__ == "__main__":
    main()
