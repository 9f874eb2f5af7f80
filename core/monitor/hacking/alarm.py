"""Warns during a run when its reward is exploited or its policy collapses, with the rollouts that show it.

`core/monitor/hacking/signals.py` detects it. For the most suspicious completion this module searches the smallest text
with the same score, for a short time and with its own scorer, so that these calls affect nothing else.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from grpo.core.check.shrink import shrink
from grpo.core.display.progress import Progress
from grpo.core.env.scores import ELSEWHERE
from grpo.core.monitor.hacking.features import MonitoredCompletion
from grpo.core.monitor.hacking.signals import HackingWatch, Suspicion
from grpo.core.monitor.watchdog import Watchdog
from grpo.core.plan import Plan
from grpo.core.processes.group import gathered
from grpo.core.processes.rank import is_first
from grpo.core.record.browse import OUTCOME, messages_of, turns_of
from grpo.core.record.run_dir import RunDir, read_rollouts, rollout_steps
from grpo.core.scoring.scorer import Scorer
from grpo.core.text.printable import one_line
from grpo.core.train.part import Part, StoppedForGood
from grpo.plugins._spec.binding import BoundReward
from grpo.plugins.rubric import parts
from grpo.plugins.types import Completion, Message

if TYPE_CHECKING:
    from grpo.core.train.batch.batch import Batch

ALARM = "the reward-hacking alarm"
LOWER = "A learning rate that is too high can cause this: start again with a lower --lr."
SECONDS = 5.0  # to look for a smaller text in
CALLS = 400
SHOWN = 160  # characters of it
SAME = 1e-9


class RunAlarm(Part):
    """The alarm of one run. Rank 0 checks, and all ranks stop together.

    An error inside the alarm ends the alarm with a warning, not the run. `run_dir`: whose recorded rollouts are read
    again where a run goes on. `noted`: gets the step and the suspicions of each batch that has some.
    """

    def __init__(
        self,
        plan: Plan,
        run_dir: RunDir,
        progress: Progress,
        noted: Callable[[int, Sequence[Suspicion]], None] | None = None,
    ) -> None:
        self._rewards = {part.name: part for reward in plan.rewards for part in parts(reward)}
        self._stops = plan.config.evaluation.stop_on_alarm
        self._path = run_dir.path
        self._progress = progress
        self._noted = noted
        self._watch = HackingWatch(steady=not any(part.env.ordered for part in plan.envs))
        self._guarded = Watchdog(ALARM, lambda _, text: progress.warned(text))
        self._first_alarm: str | None = None
        for step in rollout_steps(run_dir) if is_first() else ():  # it rewinds the record, so others might miss steps
            self._look(step, map(of_record, read_rollouts(run_dir, step, tokens=False)))

    def on_batch(self, batch: Batch) -> dict[str, float]:
        """Checks a batch, and ends a run that is to end with its first alarm, on all processes alike."""
        if is_first():
            self._warn(batch)
        for alarm in gathered(self._first_alarm, "the alarm") if self._stops else []:
            if alarm is not None:
                raise StoppedForGood(
                    f"evaluation.stop_on_alarm: {alarm} Fix the cause and start a new run, or start without "
                    "--stop-on-alarm to train regardless."
                )
        return {}

    def _warn(self, batch: Batch) -> None:
        suspicions = self._look(batch.step, _of_batch(batch))
        for suspicion in suspicions:
            text = alarm_text(suspicion)
            smallest_text = "" if suspicion.collapse else self._smallest(suspicion, batch)
            show = f"`grpo show {shlex.quote(str(self._path))} --step {suspicion.step} --limit 0` shows them."
            self._progress.warned(f"{text} {show} {smallest_text}".rstrip())
            self._first_alarm = self._first_alarm or text
        if suspicions and self._noted is not None:
            self._noted(batch.step, suspicions)

    def _look(self, step: int, completions: Iterable[MonitoredCompletion]) -> Sequence[Suspicion]:
        return self._guarded.look(step, lambda: self._watch.look(step, list(completions)))

    def _smallest(self, suspicion: Suspicion, batch: Batch) -> str:
        name = suspicion.reward or (next(iter(self._rewards)) if len(self._rewards) == 1 else "")
        bound = self._rewards.get(name)
        if bound is None or bound.grouped or not suspicion.rollouts:
            return ""
        place = suspicion.rollouts[0]
        score, completion = batch.outcomes[name][place].score, batch.completions[place]
        if score is None or completion.turns > 1:
            return ""
        try:
            text = smallest(bound, completion, score, time.monotonic() + SECONDS)
        except Exception as error:  # the suspicion is to be told of all the same
            return f"The search for a smaller text failed: {type(error).__name__}: {one_line(str(error))}."
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
        return f"The smallest text with the score {score:.3g} of '{name}' is {shown!r}."


def smallest(bound: BoundReward, completion: Completion, score: float, deadline: float) -> str:
    """Returns the smallest text found before `deadline` that scores at least as much as a completion did."""
    with Scorer([bound], workers=1, retries=0) as scorer:

        def keeps(texts: Sequence[str]) -> list[bool]:
            if time.monotonic() > deadline:
                return [False] * len(texts)
            tried = [
                replace(completion, text=text, messages=({"role": "assistant", "content": text},), token_ids=())
                for text in texts
            ]
            scores = [outcome.score for outcome in scorer.score(tried)[bound.name]]
            return [value is not None and value >= score - SAME * max(1.0, abs(score)) for value in scores]

        return shrink(completion.text, keeps, calls=CALLS).text


def alarm_text(suspicion: Suspicion) -> str:
    """Returns a suspicion in words, with the numbers of its rollouts."""
    numbers = ", ".join(f"#{number}" for number in suspicion.rollouts)
    see = f" See completions {numbers}." if numbers else ""
    if suspicion.collapse:
        return f"is the policy collapsing? Step {suspicion.step}: {suspicion.text} {LOWER}{see}"
    return f"is the reward being hacked? Step {suspicion.step}: {suspicion.text}{see}"


def _prompt(messages: Sequence[Message]) -> str:
    return "\n".join(str(message.get("content") or "") for message in messages)


def _of_batch(batch: Batch) -> Iterator[MonitoredCompletion]:
    totals: Sequence[float] = batch.advantages.totals.tolist()
    for place, completion in enumerate(batch.completions):
        yield MonitoredCompletion(
            _prompt(completion.prompt),
            completion.text,
            place // batch.group_size,
            None if math.isnan(totals[place]) else totals[place],
            batch.right[place],
            {name: outcomes[place].score for name, outcomes in batch.outcomes.items() if outcomes[place] != ELSEWHERE},
            completion.turns,
            completion.finish_reason == "length",
        )


def of_record(row: Mapping[str, Any]) -> MonitoredCompletion:
    """Returns what the alarm saw of a rollout, from a row of its file in `rollouts/`."""
    names = [key.removeprefix(OUTCOME) for key in row if key.startswith(OUTCOME) and row[key] is not None]
    return MonitoredCompletion(
        _asked(row["prompt"]),
        row["completion"],
        row["group"],
        row["reward"],
        row["right"],
        {name: row[f"score.{name}"] for name in names},
        turns_of(row),
        row["finish_reason"] == "length",
    )


@lru_cache(maxsize=64)
def _asked(prompt: str) -> str:
    return _prompt(messages_of(prompt))
