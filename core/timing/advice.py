"""Suggests changes that would make a run faster, with the gain computed from its metrics."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import torch

from grpo.core.config.settings import Settings
from grpo.core.timing.timeline import CANARIES, CHECKPOINTS, HELD_OUT, SAMPLING, SCORING, UPDATE, Timeline
from grpo.plugins._spec.binding import BoundReward
from grpo.plugins._spec.signature import is_async

WORTH = 1.1  # times as fast: less is not worth a word
FREE = 0.5  # processors at least, for a server of this machine to sample beside the update
LOOPBACK = ("127.0.0.1", "localhost", "::1")
FEW = 0.05  # of the time: what is done between steps may take this share
MOST_LOST = 50  # steps between checkpoints that are advised at most: so many are done again after a crash


@dataclass(frozen=True, slots=True)
class Advice:
    what: str  # says what takes the time
    change: str  # the setting, as somebody types it
    factor: float  # how many times as fast the steps are with it, calculated

    def text(self) -> str:
        return f"{self.what}: {self.change} would make a step {self.factor:.2g} times as fast (calculated)"


def idle_processors() -> float:
    """Returns how many processors of this machine nothing has used for a minute; infinite where a GPU trains."""
    return math.inf if torch.cuda.is_available() else (os.cpu_count() or 1) - os.getloadavg()[0]


def advise(
    times: Timeline, config: Settings, rewards: Sequence[BoundReward], workers: int, idle: float
) -> list[Advice]:
    """Returns worthwhile changes, the largest gain first; `workers`: that score, `idle`: unused processors."""
    if not times.total:
        return []
    advice = [*_less_often(times, config), *_inline(times, rewards, workers), *_overlapped(times, config, idle)]
    return sorted((change for change in advice if change.factor >= WORTH), key=lambda change: -change.factor)


def _less_often(times: Timeline, config: Settings) -> Iterator[Advice]:
    steps = config.train.steps
    kinds: list[tuple[str, int | None, Callable[[int], str], int]] = [
        (HELD_OUT, config.evaluation.every, lambda every: f"--eval-every {every}", steps),
        (CHECKPOINTS, config.output.save_every, lambda every: f"--save-every {every}", MOST_LOST),
        (CANARIES, config.canaries.every, lambda every: f"canaries.every={every}", steps),
    ]
    for part, every, change, most in kinds:
        spent, rest = times.parts[part], times.total - times.parts[part]
        if not every or not spent:
            continue
        new = min(_round_up(every * spent * (1 - FEW) / (FEW * rest)), most) if rest else most
        if new > every:
            left = rest + spent * every / new
            yield Advice(f"{times.share(part):.0%} of the time goes to {part}", change(new), times.total / left)


def _inline(times: Timeline, rewards: Sequence[BoundReward], workers: int) -> Iterator[Advice]:
    for reward in rewards:
        spec = reward.spec
        spent = min(times.calls.get(reward.name, 0.0), times.parts[SCORING])
        if spec.isolation == "inline" and not (spec.batch or is_async(spec.function)):
            yield Advice(
                f"{spent / times.total:.0%} of the time goes to reward '{reward.name}' in the trainer's own thread",
                f"isolation='process' in its @reward, with {workers} processors,",
                times.total / (times.total - spent * (1 - 1 / workers)),
            )


def _overlapped(times: Timeline, config: Settings, idle: float) -> Iterator[Advice]:
    """Advises to sample ahead: beside an update it costs no time where server and trainer have their own processors."""
    if config.rollout.backend != "vllm-server" or config.rollout.ahead:
        return
    here = any(urlsplit(url).hostname in LOOPBACK for url in config.rollout.server_url.split(","))
    if here and idle < FREE:
        return
    sampling = max(0.0, times.parts[SAMPLING] - times.sync)
    beside = times.parts[UPDATE]
    yield Advice(
        f"{times.share(SAMPLING):.0%} of the time goes to sampling, for which the trainer waits",
        "--ahead 1",
        times.total / (times.total - min(sampling, beside)),
    )


def _round_up(value: float) -> int:
    power = 1
    while True:
        for digit in (1, 2, 5):
            if digit * power >= value:
                return digit * power
        power *= 10
