"""Compares the last WINDOW steps of a run with its first ones and warns of four things that a mean reward hides.

- the entropy of the policy collapses without a gain;
- one of several rewards comes to dominate all advantages without a gain;
- a reward gives its lowest score more and more often, in slow calls: a timeout or a busy service became a zero;
- more and more episodes with sessions are paid nothing while their machines become slow: commands or graders ran out of
  time on a busy machine.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from grpo.core.text.stats import mean

WINDOW = 10  # steps
GAIN = 0.02  # accuracy that rose by less did not rise
SOLVED = 0.95  # accuracy that cannot be expected to rise much
RISE = 0.35  # of all that the reward ever moved, for runs of which nobody knows the accuracy
COLLAPSED = 0.1  # of the entropy at first
EVEN, ALONE = 0.6, 0.9  # share of the differences in reward: from less than the one to more than the other
MORE = 0.2  # share of scores that are the lowest, on top of that at first
SLOWER = 2.0  # times
LONG = 1.0  # seconds of a machine from which on it may run into a limit
OF_REWARDS = OF_DIFFERENCES, LOWEST = "of_differences", "lowest"
LOWEST_TIME = "time/lowest/"
ZEROS, SECONDS, LOAD = "sessions/zeros", "time/sessions", "time/load"
WHOLE = ("entropy", "accuracy", "reward", ZEROS, SECONDS, LOAD)


@dataclass(slots=True)
class Course:
    """The history of a metric in bounded memory."""

    count: int = 0  # of its values
    # first, last: up to WINDOW of them
    first: list[float] = field(default_factory=list)
    last: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    # lowest, highest: of all
    lowest: float = math.inf
    highest: float = -math.inf

    def add(self, value: float) -> None:
        self.count += 1
        if self.count <= WINDOW:
            self.first.append(value)
        self.last.append(value)
        self.lowest, self.highest = min(self.lowest, value), max(self.highest, value)

    def windows(self) -> tuple[float, float] | None:
        """Returns the means of the first and of the last steps, None before they are apart."""
        return None if self.count < 2 * WINDOW else (mean(self.first), mean(self.last))


class Trends:
    """Remembers the metrics of a run."""

    def __init__(self) -> None:
        self._courses: defaultdict[str, Course] = defaultdict(Course)

    def look(self, row: Mapping[str, float | int | None]) -> Iterator[tuple[str, str]]:
        """Yields the warnings of a step: a key, and the words."""
        for name, value in row.items():
            if value is not None and (
                name in WHOLE or name.startswith(LOWEST_TIME) or name.rpartition("/")[2] in OF_REWARDS
            ):
                self._courses[name].add(float(value))
        step = row["step"]
        yield from self._collapsed(step)
        yield from self._busy_machine(step)
        for name in [*self._courses]:
            reward, _, what = name.removeprefix("rewards/").rpartition("/")
            if what == OF_DIFFERENCES:
                yield from self._taken_over(step, name, reward)
            elif what == LOWEST:
                yield from self._slow_zeros(step, name, reward)

    def _collapsed(self, step: object) -> Iterator[tuple[str, str]]:
        windows = self._courses["entropy"].windows()
        if windows and windows[0] > 0 and windows[1] < COLLAPSED * windows[0] and not self._gained():
            yield (
                "entropy",
                f"the entropy of the policy fell from {windows[0]:.3g} to {windows[1]:.3g} nats per token by step "
                f"{step} without a gain: it gives only few different answers. Lower train.lr, raise the temperature, "
                "or train with --loss entropy_bonus.",
            )

    def _busy_machine(self, step: object) -> Iterator[tuple[str, str]]:
        zeros, seconds, load = (self._courses[name].windows() for name in (ZEROS, SECONDS, LOAD))
        if zeros and seconds and load and zeros[1] > zeros[0] + MORE and seconds[1] > max(LONG, SLOWER * seconds[0]):
            yield (
                "busy machine",
                f"{zeros[1]:.0%} of the episodes with sessions are paid 0 by step {step}, up from {zeros[0]:.0%}, and "
                f"their machines take {seconds[1]:.3g} s, up from {seconds[0]:.3g} s. The load of this machine is "
                f"{load[1]:.1f} per core; it was {load[0]:.1f}. If commands or graders run out of time, play fewer "
                "episodes at once, or raise the environment's options seconds and grade_seconds.",
            )

    def _taken_over(self, step: object, name: str, reward: str) -> Iterator[tuple[str, str]]:
        windows = self._courses[name].windows()
        if windows and windows[0] < EVEN and windows[1] > ALONE and not self._gained():
            yield (
                f"alone {reward}",
                f"reward '{reward}' makes up {windows[1]:.0%} of the reward differences within groups by step {step}, "
                f"up from {windows[0]:.0%}, without a gain: the other rewards have no effect. Lower its weight, or "
                "normalise each reward with --advantage gdpo.",
            )

    def _slow_zeros(self, step: object, name: str, reward: str) -> Iterator[tuple[str, str]]:
        windows, times = self._courses[name].windows(), self._courses[f"{LOWEST_TIME}{reward}"].last
        if windows and windows[1] > windows[0] + MORE and times and mean(times) > SLOWER:
            yield (
                f"slow {reward}",
                f"reward '{reward}' gives its lowest score to {windows[1]:.0%} of the completions by step {step}, up "
                f"from {windows[0]:.0%}, and these calls take {mean(times):.1f} times as long as others. If a timeout "
                "or a busy service becomes a zero there, raise TransientError or return None instead.",
            )

    def _gained(self) -> bool:
        """Returns whether the run became better: by accuracy where that is known, else by its reward."""
        if accuracies := self._courses["accuracy"].windows():
            return accuracies[1] - accuracies[0] >= GAIN or accuracies[1] >= SOLVED
        course = self._courses["reward"]
        rewards = course.windows()
        return rewards is not None and rewards[1] - rewards[0] > RISE * (course.highest - course.lowest)
