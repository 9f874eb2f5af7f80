"""Shows a run to a person: a live panel on a terminal, plain lines elsewhere, nothing but warnings with --quiet."""

from __future__ import annotations

import math
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from grpo.core.config.python_objects import given_of, how_to_resume
from grpo.core.display.first_prompt import first_prompt
from grpo.core.display.progress import Silent
from grpo.core.env.episodes import Episode, Episodes
from grpo.core.env.mixture import RunEnv
from grpo.core.env.questions import questions_of
from grpo.core.plan import Plan
from grpo.core.text.printable import counted, printable
from grpo.core.text.stats import Estimate
from grpo.core.timing.forecast import Forecast
from grpo.core.train.batch.env_metrics import HELD_OUT, PREFIX
from grpo.plugins._spec.binding import BoundAdvantage, BoundAgent, BoundLoss
from grpo.plugins.types import Completion

BARS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 24
CALLS, FAILED = "tools/calls", "turns/failed"
TURNS = (("turns", "turns/mean"), ("tool calls", CALLS))
SAMPLE_LINES = 12


def display_for(*, quiet: bool) -> Silent:
    if quiet:
        return Quiet()
    return LivePanel() if sys.stdout.isatty() else PlainLines()


class Quiet(Silent):
    """Warnings only. Every display keeps to the streams that it found: plugins replace those of the process."""

    def __init__(self) -> None:
        self._err = sys.stderr

    def warned(self, text: str) -> None:
        print(f"warning: {printable(self.worded(text))}", file=self._err, flush=True)


class PlainLines(Quiet):
    """One line per event, for logs and pipes."""

    def __init__(self) -> None:
        super().__init__()
        self._plan: Plan | None = None
        self._out = sys.stdout
        self._step = 0
        self._held_out: list[str] = []  # of a step that is still to be told

    def planned(self, plan: Plan, run_dir: Path | None, notes: Sequence[str]) -> None:
        self._plan = plan
        for name, value in describe(plan, run_dir):
            self._say(f"{name:<12}{self.worded(value)}")
        if (prompt := first_prompt(plan)) is not None:
            title, text = prompt
            self._say(f"{title}:")
            for line in text.split("\n"):
                self._say(f"    | {line}".rstrip())
        for note in notes:
            self._say(note)

    def loading(self, what: str) -> None:
        self._say(f"loading {what}")

    def warmed(self, step: int, steps: int, loss: float) -> None:
        if step % 10 == 0 or step == steps:
            self._say(f"warm-up {step}/{steps}  loss {loss:.3f}")

    def evaluating(self, done: int, problems: int) -> None:
        self._say(evaluating(done, problems))

    def evaluated(self, step: int, accuracy: Estimate, env: str = "") -> None:
        self._held_out.append(f"{_of(env)}held-out accuracy after {counted(step, 'step')}: {estimate(accuracy)}")
        if step <= self._step:
            self._say_held_out()

    def stepped(self, row: Mapping[str, Any], sample: Completion | None, scores: Mapping[str, str]) -> None:
        self._step = row["step"]
        parts = [f"step {row['step']}"]
        parts += [f"{label} {number(row[key])}" for label, key in headline(row)]
        parts.append(f"{row.get('time/step') or 0:.1f} s")
        self._say("  ".join(parts))
        self._say_held_out()

    def foreseen(self, forecast: Forecast) -> None:
        self._say(f"forecast   {forecast.text()}")

    def ended(self, status: str, run_dir: Path, step: int) -> None:
        for line in ending(status, run_dir, step, self._plan):
            self._say(line)

    def close(self) -> None:
        self._say_held_out()

    def timed(self, spent: str, tokens: str, advice: str | None) -> None:
        for line in timing(spent, tokens, advice and self.worded(advice)):
            self._say(line)

    def _say_held_out(self) -> None:
        for line in self._held_out:
            self._say(line)
        self._held_out.clear()

    def _say(self, line: str) -> None:
        print(line, file=self._out, flush=True)


class Redrawn(Silent):
    """A display that is drawn anew after each event, from what is known by then."""

    def __init__(self) -> None:
        self._plan: Plan | None = None
        self._now = "starting"
        self._row: Mapping[str, Any] = {}
        self._history: dict[str, list[float]] = {}
        self._held_out: list[str] = []
        self._sample: tuple[str, str, str] | None = None  # title, question and completion
        self._forecast: Forecast | None = None
        self._foreseen = 0.0  # when that was made

    def stepped(self, row: Mapping[str, Any], sample: Completion | None, scores: Mapping[str, str]) -> None:
        self._row = row
        for key, value in row.items():
            if value is not None:
                self._history.setdefault(key, []).append(value)
        if sample is not None:
            shown = "  ".join(f"{name} {score}" for name, score in scores.items())
            question = sample.prompt[-1]["content"] if sample.prompt else ""
            self._sample = (f"a completion: {shown}", question, sample.text.strip())
        self._draw()

    def foreseen(self, forecast: Forecast) -> None:
        self._forecast, self._foreseen = forecast, time.monotonic()
        self._draw()

    @property
    def _steps(self) -> int:
        return (self._plan.config.train.steps or 0) if self._plan is not None else 0

    def _to_go(self) -> list[str]:
        if self._forecast is None:
            return []
        left = self._forecast.later(self._row["step"], time.monotonic() - self._foreseen)
        return [] if left is None else [f"forecast: {left.text()}"]

    def _say(self, now: str) -> None:
        self._now = now
        self._draw()

    def _draw(self) -> None: ...


class LivePanel(Redrawn):
    """A panel that is redrawn in place: progress, a sparkline per reward, a sample with its scores."""

    def __init__(self) -> None:
        super().__init__()
        self._console = Console(file=sys.stdout)
        self._live: Live | None = None
        self._measuring = ""

    def planned(self, plan: Plan, run_dir: Path | None, notes: Sequence[str]) -> None:
        self._plan = plan
        table = Table.grid(padding=(0, 2))
        for name, value in describe(plan, run_dir):
            table.add_row(Text(name, style="bold"), Text(self.worded(value)))
        self._console.print(Panel(table, title="grpo", title_align="left"))
        if (prompt := first_prompt(plan)) is not None:
            title, text = prompt
            self._console.print(Panel(Text(text), title=Text(title), title_align="left"))
        for note in notes:
            self._console.print(Text(note))
        if run_dir is not None:
            self._live = Live(self._panel(), console=self._console, refresh_per_second=4)
            self._live.start()

    def loading(self, what: str) -> None:
        self._say(f"loading {what} ...")

    def warmed(self, step: int, steps: int, loss: float) -> None:
        self._say(f"supervised warm-up  {step}/{steps}  loss {loss:.3f}")

    def evaluating(self, done: int, problems: int) -> None:
        self._measuring = evaluating(done, problems)
        self._draw()

    def evaluated(self, step: int, accuracy: Estimate, env: str = "") -> None:
        self._measuring = ""
        self._held_out.append(f"{_of(env)}{accuracy.mean:.1%} after {step}")
        text = f"{_of(env)}held-out accuracy after {counted(step, 'step')}: {estimate(accuracy)}"
        self._print(Text(text, style="green"))
        self._draw()

    def warned(self, text: str) -> None:
        self._print(Text(f"warning: {printable(self.worded(text))}", style="yellow"))

    def ended(self, status: str, run_dir: Path, step: int) -> None:
        self.close()
        for line in ending(status, run_dir, step, self._plan):
            self._console.print(Text(line), soft_wrap=True)  # a command that is copied stays one line

    def timed(self, spent: str, tokens: str, advice: str | None) -> None:
        for line in timing(spent, tokens, advice and self.worded(advice)):
            self._console.print(Text(line), soft_wrap=True)

    def close(self) -> None:
        if self._live is not None:
            self._forecast = None
            self._draw()
            self._live.stop()
            self._live = None

    def _panel(self) -> Group:
        if not self._row:
            return Group(Text(self._now), *self._below())
        step = self._row["step"]
        table = Table.grid(padding=(0, 2))
        for label, key in headline(self._row):
            spark = Text(sparkline(self._history[key]), style="cyan")
            table.add_row(Text(label, style="bold"), number(self._row[key]), spark)
        parts: list[Any] = [self._progress_line(step), table]
        if self._held_out:
            parts.append(Text("held-out accuracy: " + ", ".join(self._held_out[-4:]), style="green"))
        parts += map(Text, self._to_go())
        if self._sample is not None:
            title, question, text = self._sample
            text = "\n".join(text.splitlines()[:SAMPLE_LINES])
            parts.append(Panel(Text(printable(f"{question}\n\n{text}")), title=Text(title), title_align="left"))
        return Group(*parts, *self._below())

    def _below(self) -> list[Text]:
        return [Text(self._measuring)] if self._measuring else []

    def _progress_line(self, step: int) -> Text:
        width = 30
        filled = round(width * step / max(self._steps, 1))
        seconds = self._row.get("time/step") or 0
        return Text(f"step {step}/{self._steps}  {'━' * filled}{'─' * (width - filled)}  {seconds:.1f} s/step")

    def _draw(self) -> None:
        if self._live is not None:
            self._live.update(self._panel())

    def _print(self, what: Text) -> None:
        (self._live.console if self._live is not None else self._console).print(what)


def describe(plan: Plan, run_dir: Path | None) -> list[tuple[str, str]]:
    """Returns the first screen: what runs on what, and how to move to a real model."""
    config, train = plan.config, plan.config.train
    if plan.source.trained:
        model = f"{plan.source.trained} ({plan.parameters / 1e6:,.2f} M parameters)"
    elif plan.source.embedded:
        model = f"embedded demonstration model ({plan.parameters / 1e6:.2f} M parameters; use your own with --model)"
    else:
        model = f"{plan.source.path} ({plan.parameters / 1e6:,.0f} M parameters)"
    how = f"LoRA rank {config.lora.rank}" if config.lora.enabled else "full fine-tuning"
    rewards = ", ".join(f"{r.name}" + (f" x {r.weight:g}" if r.weight != 1 else "") for r in plan.rewards)
    turns, unit = config.rollout.turns, "turns" if plan.agent is None else "calls"
    length = (
        f"{config.rollout.max_completion_length} new tokens{f' in each of up to {turns} {unit}' if turns > 1 else ''}"
    )
    longest = f"the longest {'prompt' if plan.agent is None else 'task'} has {plan.longest_prompt}"
    lines = [
        ("model", model),
        *(("environment", _environment(part, several=len(plan.envs) > 1)) for part in plan.envs),
        ("rewards", rewards),
        *([] if plan.sampler is None else [("sampler", plan.sampler.name)]),
        *([] if plan.agent is None else [("agent", _agent(plan, plan.agent))]),
        ("training", f"{how}, learning rate {train.lr:g}, {train.dtype}, {_objective(plan)}"),
        (
            "steps",
            f"{train.steps} of {counted(train.prompts_per_step, 'prompt')} x {train.group_size} completions, "
            f"up to {length}; {longest}",
        ),
    ]
    if run_dir is not None:
        lines.append(("directory", str(run_dir)))
    return lines


def _agent(plan: Plan, agent: BoundAgent) -> str:
    rollout, train = plan.config.rollout, plan.config.train
    most = rollout.turns * rollout.max_completion_length
    calls = rollout.turns * train.prompts_per_step * train.group_size
    named = plan.config.agent if isinstance(plan.config.agent, str) else agent.name
    return (
        f"{named}: at most {counted(rollout.turns, 'call')} and {most:,} sampled tokens an episode, "
        f"{calls:,} calls a step"
    )


def _objective(plan: Plan) -> str:
    usual = plan.advantage.name == "group_mean" and not plan.advantage.options
    return f"loss {_with_options(plan.loss)}" + ("" if usual else f", advantage {_with_options(plan.advantage)}")


def _with_options(bound: BoundLoss | BoundAdvantage) -> str:
    options = ", ".join(f"{name}={value}" for name, value in bound.options.items())
    return bound.name + (f" ({options})" if options else "")


def _environment(part: RunEnv, *, several: bool) -> str:
    spec = part.env.spec
    named = next((option.default for option in spec.options if option.name == "dataset"), ... if spec.dataset else None)
    rows = part.env.options.get("dataset") or named or "its own episodes"
    whence = "" if rows is ... else f" ({rows})"
    share = f"{part.share:.0%} of the prompts, " if several else ""
    train = f"{counted(len(part.train), 'training row')}{_repeated(part, part.train)}"
    return f"{part.name}: {share}{train}{whence}, {len(part.held_out)} held out{_repeated(part, part.held_out)}"


def _repeated(part: RunEnv, episodes: Sequence[Episode]) -> str:
    if isinstance(episodes, Episodes):  # of many rows, which know it if they are rows of ours
        different = len(episodes) if episodes.asked is None else len(set(episodes.asked))
    else:
        different = len(set(questions_of(part.env, episodes)))
    return f", {different:,} different" if different < len(episodes) else ""


def _of(env: str) -> str:
    return f"{env}: " if env else ""


def evaluating(done: int, problems: int) -> str:
    """Returns how far held-out accuracy is."""
    return f"held-out accuracy: {done} of {counted(problems, 'problem')}"


def attempt(plan: Plan) -> str | None:
    """Returns the command that tries the model of a run, with RUN for its directory; None where no command finds it."""
    if {"env", "verifier"} & given_of(plan.config).keys():
        return None
    if [part.env.name for part in plan.envs] == ["gsm8k"]:
        return "grpo generate RUN -p 'Ann has 3 pens and buys 4 more. How many pens does she have?'"
    return "grpo eval --model RUN"


def ending(status: str, run_dir: Path, step: int, plan: Plan | None) -> list[str]:
    """Returns the last lines: what there is now and what to do with it."""
    run = shlex.quote(str(run_dir))
    if status == "interrupted":
        again = f"grpo run --resume {run}" if plan is None else how_to_resume(plan.config, run_dir)
        return [f"stopped after step {step}. Continue with: {again}"]
    tried = attempt(plan) if plan is not None else "grpo eval --model RUN"
    return [
        f"done after step {step}",
        f"curves     {run_dir / 'reward.png'}",
        f"rollouts   grpo show {run}",
        f"report     grpo report {run}",
        *([] if tried is None else [f"try it     {tried.replace('RUN', run, 1)}"]),
        f"export     grpo export {run} my-model",
    ]


def timing(spent: str, tokens: str, advice: str | None) -> list[str]:
    """Returns the lines about the time and the tokens of a run."""
    figures = {"time": spent, "tokens": tokens, "faster": advice}
    return [f"{name:<11}{text}" for name, text in figures.items() if text]


BESIDE = (("wasted", "sampling/wasted"), ("steps old", "sampling/staleness"))  # where there is some


def headline(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns (label, key) of the metrics worth a line, as far as the row has them."""
    own = [key for key in row if key.startswith("rewards/") and key.count("/") == 2]  # figures of rewards have more
    rewards = [key for key in own if key.endswith("/mean")]
    envs = [key for key in row if key.startswith(PREFIX) and key.endswith(("/reward", "/accuracy"))]
    envs = [key for key in envs if not key.endswith(HELD_OUT)]
    first = [("reward", "reward"), ("accuracy", "accuracy")]
    last = [
        ("length", "completions/mean_length"),
        *((label, key) for label, key in TURNS if (row.get("turns/most") or 0) > 1 or key == CALLS),
        ("no signal", "frac_reward_zero_std"),
        *((label, key) for label, key in BESIDE if row.get(key)),
        ("loss", "loss"),
        ("kl", "kl"),
    ]
    taken = {label for label, _ in (*first, *last)}  # a reward may be called "length" too
    each = [(key.split("/")[1], key) for key in rewards if len(rewards) > 1 and not envs]
    wanted = [
        *first,
        *((f"reward {name}" if name in taken else name, key) for name, key in each),
        *((key.removeprefix(PREFIX).replace("/", " "), key) for key in envs),
        *last,
    ]
    lost = row.get(FAILED) or 0.0  # of which every reward has its share
    wanted += [("rollouts failed", FAILED)] if lost else []
    failed = [key for key in own if key.endswith("/failure") and (row[key] or 0.0) > lost]
    wanted += [(f"{key.split('/')[1]} failed", key) for key in failed]
    return [(label, key) for label, key in wanted if row.get(key) is not None]


def sparkline(values: Sequence[float]) -> str:
    """Returns the last values as a row of bars between their smallest and largest."""
    recent = [value for value in values[-SPARK_WIDTH:] if math.isfinite(value)]
    if not recent:
        return ""
    low, high = min(recent), max(recent)
    if high == low:
        return BARS[3] * len(recent)
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1))] for value in recent)


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def estimate(value: Estimate) -> str:
    """Returns a share with its interval."""
    left_out = f", {value.left_out} left out" if value.left_out else ""
    if not value.count:
        return f"not known (0 problems{left_out})"
    different = f", {value.questions} different" if value.questions < value.count else ""
    problems = f"{counted(value.count, 'problem')}{different}{left_out}"
    return f"{value.mean:.1%} ({value.low:.1%} to {value.high:.1%}, {problems})"
