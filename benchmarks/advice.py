"""Is the advice at the end of a run right? Slow runs, each with a planted reason, and the same runs mended as advised.

    python benchmarks/advice.py [--steps 14] [--only held-out checkpoints canaries inline overlap]

Trains the embedded model with each reason, applies the first change that the run advises and nothing else, trains
again, and prints how many times as fast a step was said to become and became; and the seconds that the trainer itself
computed in a step, before and after: where these are alike and a step became slower, others used the processors.
`overlap` needs vLLM (make vllm): its server and the trainer have one processor each.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

REWARD = """
import time
from grpo import Completion, reward

@reward(version=1, isolation="{isolation}")
def slow(completion: Completion) -> float:
    time.sleep({seconds})
    return completion.text.count("1") / 10
"""
Tree = dict[str, Any]


def held_out(folder: Path, number: int | None) -> Tree:
    """Held-out accuracy after every second step."""
    return {"evaluation": {"size": 100, "every": number or 2}}


def checkpoints(folder: Path, number: int | None) -> Tree:
    """A checkpoint after every step, of which it is the largest part: one completion of each prompt is short."""
    return {"output": {"save_every": number or 1}, "train": {"prompts_per_step": 2}}


def canaries(folder: Path, number: int | None) -> Tree:
    """Sixty known completions beside every batch, and a reward that waits."""
    reward = folder / "waits.py"
    reward.write_text(REWARD.format(isolation="process", seconds=0.02))
    known = folder / "canaries.jsonl"
    rows = [{"completion": "1" * (row % 9), "expect": {"slow": (row % 9) / 10}} for row in range(60)]
    known.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"rewards": [f"{reward}:slow"], "canaries": {"file": str(known), "every": number or 1}}


def inline(folder: Path, number: int | None) -> Tree:
    """A reward that waits in the trainer's own thread."""
    reward = folder / f"waits{number}.py"
    reward.write_text(REWARD.format(isolation="process" if number else "inline", seconds=0.03))
    return {"rewards": [f"{reward}:slow"]}


def overlap(folder: Path, number: int | None) -> Tree:
    """A server samples, and the trainer waits for it."""
    return {"rollout": {"backend": "vllm-server", "ahead": number or 0}}


PLANTED: dict[str, Callable[[Path, int | None], Tree]] = {
    "held-out": held_out,
    "checkpoints": checkpoints,
    "canaries": canaries,
    "inline": inline,
    "overlap": overlap,
}


def clocked(spent: list[float]) -> Any:
    """Returns a display that notes, after each step, how many seconds of processor this process has had."""
    from grpo.core.display.progress import Silent

    class Clock(Silent):
        def stepped(self, row: Mapping[str, Any], sample: Any, scores: Mapping[str, str]) -> None:
            spent.append(time.process_time())

    return Clock()


def run(tree: Tree) -> None:
    """Runs in a process of its own: trains, and prints seconds of a step and the advice."""
    from grpo.core.config.schema import parse_config
    from grpo.core.planning.decide import make_plan
    from grpo.core.record.run_dir import RunDir, read_metrics
    from grpo.core.run.job import start
    from grpo.core.scoring.executors import processors
    from grpo.core.timing.advice import advise
    from grpo.core.timing.timeline import timeline
    from grpo.plugins.host import Host

    spent: list[float] = []
    host = Host.discover()
    config = parse_config(tree)
    start(config, host, clocked(spent))
    plan = make_plan(parse_config({**tree, "out": f"{tree['out']}-again"}), host)
    times = timeline(read_metrics(RunDir(Path(tree["out"]))))
    advice = advise(times, plan.config, plan.rewards, processors(), math.inf)
    told = [{"change": one.change, "factor": one.factor, "text": one.text()} for one in advice]
    computed = (spent[-2] - spent[0]) / (len(spent) - 2)
    print(
        json.dumps({"seconds": times.total / times.steps, "computed": computed, "times": times.text(), "advice": told})
    )


def measured(tree: Tree, processor: int | None) -> Mapping[str, Any]:
    """Returns what a run in a fresh process says."""
    command = [sys.executable, __file__, "--tree", json.dumps(tree)]
    pinned = ["taskset", "-c", str(processor), *command] if processor is not None else command
    done = subprocess.run(pinned, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"a run ended with {done.returncode}:\n{done.stderr[-3000:]}")
    found: Mapping[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--steps", type=int, default=14)
    parser.add_argument("--only", nargs="+", choices=PLANTED, default=list(PLANTED))
    parser.add_argument("--tree", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tree:
        run(json.loads(options.tree))
        return
    print(f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}")
    print(f"python {shlex.join(sys.argv)}\n")
    print("| planted | s a step | computed | advised | predicted | measured | off |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in options.only:
        if name == "overlap" and importlib.util.find_spec("vllm") is None:
            print("| overlap | not measured: vLLM is not installed | | | | | |")
            continue
        settings: AbstractContextManager[Tree] = server() if name == "overlap" else nullcontext({})
        with tempfile.TemporaryDirectory() as place, settings as more:
            print(_row(name, Path(place), options.steps, more), flush=True)


@contextmanager
def server() -> Iterator[Tree]:
    """Starts a rollout server on the first processor, and yields the settings that lead to it."""
    from sync import served

    from grpo.core.policy.load import policy_source

    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {0})  # a new process has those of this one
    with served(policy_source(None).path, "float32") as url:
        os.sched_setaffinity(0, own)
        yield {"server_url": url}


def _row(name: str, folder: Path, steps: int, more: Tree) -> str:
    def tree(number: int | None, out: str) -> Tree:
        base: Tree = {"env": "gsm8k", "rewards": ["proximity"], "out": str(folder / out), "evaluation": {"size": 0}}
        own = PLANTED[name](folder, number)
        train = {"steps": steps, "warmup_steps": 0, **own.pop("train", {})}
        rollout = {**own.pop("rollout", {}), **more}
        return {**base, **own, "train": train, "rollout": rollout}

    pinned = 1 if name == "overlap" else None
    before = measured(tree(None, "before"), pinned)
    print(f"{name}: {before}", file=sys.stderr, flush=True)
    if not before["advice"]:
        return f"| {name} | {before['seconds']:.2f} | | nothing | | | |"
    first = before["advice"][0]
    numbers = re.findall(r"\d+", first["change"])
    after = measured(tree(int(numbers[0]) if numbers else 1, "after"), pinned)
    print(f"{name}, mended: {after}", file=sys.stderr, flush=True)
    factor = before["seconds"] / after["seconds"]
    off = first["factor"] / factor - 1
    change = first["change"].split(" in its ")[0]
    spent = f"{before['computed']:.2f}, {after['computed']:.2f}"
    gains = f"{first['factor']:.2f} | {factor:.2f} | {off:+.0%}"
    return f"| {name} | {before['seconds']:.2f} | {spent} | `{change}` | {gains} |"


if __name__ == "__main__":
    main()
