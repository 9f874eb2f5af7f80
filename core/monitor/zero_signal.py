"""Stops a run whose rewards say nothing: one abstains on everything (no `return`), or they never differ in a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from grpo.core.check.trial import why_abstained
from grpo.core.env.scores import ELSEWHERE
from grpo.core.processes.group import gathered
from grpo.core.processes.rank import is_first
from grpo.core.scoring.outcome import Outcome
from grpo.core.train.part import Part, StoppedForGood
from grpo.plugins._spec.binding import BoundReward

if TYPE_CHECKING:
    from grpo.core.train.batch.batch import Batch

LIFTED = "To train on regardless, start with --set failures.no_signal_steps=0"


class ZeroSignalWatch(Part):
    """Counts the steps without a signal, on the first process, on from its recorded metrics; `limit` 0: never stops."""

    def __init__(
        self, rewards: Sequence[BoundReward], limit: int, rows: Iterable[Mapping[str, float | None]] = ()
    ) -> None:
        self._rewards = {reward.name: reward for reward in rewards if reward.weight}
        self._limit = limit
        self._abstains_since: dict[str, int] = {}
        self._alike_since: int | None = None
        self._differed = False
        for row in rows:
            if row.get("frac_reward_zero_std") is not None:
                shares = {name: row.get(f"rewards/{name}/abstain") for name in self._rewards}
                self._count(int(row["step"] or 0), row["frac_reward_zero_std"] == 1.0, shares)

    def on_batch(self, batch: Batch) -> dict[str, float]:
        """Ends a run without a signal, on all processes alike."""
        for why in gathered(self.look(batch) if is_first() else None, "the signal of the rewards"):
            if why is not None:
                raise StoppedForGood(why)
        return {}

    def look(self, batch: Batch) -> str | None:
        """Counts a batch; returns why the run is to stop, or None."""
        shares = {name: _abstained(batch.outcomes[name]) for name in self._rewards}
        self._count(batch.step, batch.advantages.no_signal == 1.0, shares)
        if not self._limit:
            return None
        for name, since in self._abstains_since.items():
            if batch.step - since + 1 >= self._limit:
                return self._abstains(self._rewards[name], since, batch)
        if not self._differed and self._alike_since is not None and batch.step - self._alike_since + 1 >= self._limit:
            return _alike(batch.step, batch.advantages.totals.tolist())
        return None

    def _count(self, step: int, alike: bool, abstained: Mapping[str, float | None]) -> None:
        for name, share in abstained.items():
            if share == 1.0:
                self._abstains_since.setdefault(name, step)
            elif share is not None:
                self._abstains_since.pop(name, None)
        self._differed = self._differed or not alike
        if self._alike_since is None:
            self._alike_since = step

    def _abstains(self, reward: BoundReward, since: int, batch: Batch) -> str:
        own = zip(batch.outcomes[reward.name], batch.completions, strict=True)
        reason, row = next((outcome.reason, completion.row) for outcome, completion in own if outcome != ELSEWHERE)
        return (
            f"reward '{reward.name}' ({reward.distribution}) abstained on every completion of steps {since} to "
            f"{batch.step}: {why_abstained(reward, reason, row)}. Fix the reward, then resume the run. {LIFTED}."
        )


def _abstained(outcomes: Sequence[Outcome]) -> float | None:
    own = [outcome.kind == "abstain" for outcome in outcomes if outcome != ELSEWHERE]
    return sum(own) / len(own) if own else None


def _alike(step: int, totals: Sequence[float]) -> str:
    same = len({*totals}) == 1
    paid = f"every completion was paid {totals[0]:g}" if same else "all completions of a prompt were paid the same"
    return (
        f"no group had two different rewards in any step up to step {step}: {paid}, and nothing was learned. The "
        "reward may pay everything the same, or the task may be solved, or out of reach: look at completions with "
        f"`grpo show`, and check the reward with `grpo plugins check`. {LIFTED}."
    )
