"""Couples a rollout backend with its policy, so that no sample comes from stale weights.

Processes sync together, and each samples its own part; where an engine lost its weights, all of them sync again, and
that one samples again from the same random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import InitVar, dataclass
from typing import Any, TypeVar, cast

from grpo.core.rollout.draws import draws
from grpo.core.rollout.sync.fault import end_together, faulty_anywhere
from grpo.core.rollout.types import Rollouts

T = TypeVar("T")


@dataclass(eq=False)
class SyncedRollouts:
    """Samples from the policy as it is."""

    rollouts: Rollouts  # the backend; it is not this object's to close
    # the policy as it samples, unwrapped, and with its weights whole where it is the backend that samples
    policy: Callable[[], AbstractContextManager[Any]]
    # held while the backend serves this policy, where threads sample other versions of it with the same one
    turn: InitVar[AbstractContextManager[Any] | None] = None

    def __post_init__(self, turn: AbstractContextManager[Any] | None) -> None:
        self._turn = nullcontext() if turn is None else turn

    @property
    def exact(self) -> bool:
        """Whether the policy itself computes the log-probabilities of what it samples."""
        return self.rollouts.exact

    def sync(self) -> Mapping[str, float]:
        """Syncs the weights, and returns metrics. Raises RunError."""
        with self._turn, self.policy() as model:
            return self.rollouts.sync(model)

    def roll_out(self, sample: Callable[[Rollouts], T], *, again: bool = False) -> tuple[T, dict[str, float]]:
        """Syncs and samples; if the backend lost its weights in between, once more. Raises RunError.

        `sample`: samples from the backend, as often as it wants. `again`: sync everything anew. Returns its value and
        metrics.
        """
        with self._turn, self.policy() as model:
            metrics = dict(self.rollouts.sync(model, again=again))
            done = sample(self.rollouts) if self.rollouts.exact else self._sampled_anywhere(sample, model, metrics)
            self.rollouts.rest()
        return done, metrics

    def _sampled_anywhere(self, sample: Callable[[Rollouts], T], model: Any, metrics: dict[str, float]) -> T:
        """Samples, and again if the engine lost its weights; an error on one process ends it on all."""
        generator = draws()
        state = generator.get_state()
        done, error = self._tried(sample)
        if faulty_anywhere(error, "the samples"):
            metrics |= {**self.rollouts.sync(model, again=True), "sync/repeated": 1.0}
            if error is not None:
                generator.set_state(state)
                done, error = self._tried(sample)
            end_together(error, "the samples")
        return cast("T", done)

    def _tried(self, sample: Callable[[Rollouts], T]) -> tuple[T | None, Exception | None]:
        try:
            return sample(self.rollouts), None
        except Exception as error:
            return None, error

    def differing(self) -> list[str]:
        with self._turn, self.policy() as model:
            return self.rollouts.differing(model)
