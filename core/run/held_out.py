"""Measures held-out accuracy between steps by greedy answers of the current policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass
from functools import partial
from typing import TYPE_CHECKING

from grpo.core.env.mixture import RunEnv
from grpo.core.env.questions import questions_of
from grpo.core.measure.evaluate import complete
from grpo.core.plan import Plan
from grpo.core.processes.group import rows_of_all
from grpo.core.processes.rank import count, rank
from grpo.core.processes.spinning import beside_workers
from grpo.core.rollout.players import player_of
from grpo.core.rollout.synced import SyncedRollouts
from grpo.core.rollout.turns.play import Plays
from grpo.core.rollout.types import SamplingParams
from grpo.core.text.randomness import preserved_randomness
from grpo.core.text.stats import Estimate, proportion
from grpo.core.train.batch import env_metrics
from grpo.plugins.types import Completion

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from grpo.core.rollout.agents.open import AgentSide

FIRST_WORD = 20.0  # seconds until the first word of how far it is
NEXT_WORD = 30.0


@dataclass(eq=False)
class HeldOut:
    """The held-out episodes of a run."""

    plan: Plan
    tokenizer: PreTrainedTokenizerBase
    end_ids: InitVar[Sequence[int]]
    # says of completions whether they are right, None where nobody knows
    judge: Callable[[Sequence[Completion]], list[bool | None]]
    # receives step, accuracy and environment ("" for all of them together)
    on_measured: Callable[[int, Estimate, str], None]
    # receives how many problems are done, of how many, now and then where it takes long; None: nobody does
    so_far: Callable[[int, int], None] | None = None
    agents: AgentSide | None = None

    def __post_init__(self, end_ids: Sequence[int]) -> None:
        self._params = SamplingParams(
            max_tokens=self.plan.config.rollout.max_completion_length,
            eos_ids=tuple(end_ids),
            pad_id=self.tokenizer.pad_token_id,
            temperature=0.0,
        )

    def between_steps(self, step: int, rollouts: SyncedRollouts) -> dict[str, float]:
        """Measures after the steps where it is due: every `evaluation.every`, and the last one."""
        every = self.plan.config.evaluation.every
        due = step == self.plan.config.train.steps or (every and step % every == 0)
        return self.measure(step, rollouts) if due else {}

    @beside_workers()
    def measure(self, step: int, rollouts: SyncedRollouts) -> dict[str, float]:
        """Returns the accuracy over all held-out episodes and of each environment; random numbers stay as they were."""
        parts = [part for part in self.plan.envs if part.held_out]
        asked = {part.name: questions_of(part.env, part.held_out) for part in parts}
        several = len(self.plan.envs) > 1
        report_progress = self._now_and_then(sum(len(part.held_out) for part in parts))
        every: list[bool | None] = []
        metrics: dict[str, float] = {}
        for part in parts:
            right = self._right(part, rollouts, report_progress)
            every += right
            if several:
                estimate = proportion(right, asked[part.name])
                metrics[f"{env_metrics.PREFIX}{part.name}/{env_metrics.HELD_OUT}"] = estimate.mean
                self.on_measured(step, estimate, part.name)
        if not parts:
            return {}
        accuracy = proportion(every, [question for part in parts for question in asked[part.name]])
        if not several:
            self.on_measured(step, accuracy, "")
        return {
            env_metrics.HELD_OUT: accuracy.mean,
            env_metrics.HELD_OUT_LOW: accuracy.low,
            env_metrics.HELD_OUT_HIGH: accuracy.high,
            env_metrics.HELD_OUT_PROBLEMS: accuracy.count,
            env_metrics.HELD_OUT_QUESTIONS: accuracy.questions,
            **metrics,
        }

    def _now_and_then(self, problems: int) -> Callable[[int], None]:
        done, due = 0, time.monotonic() + FIRST_WORD

        def on_batch(size: int) -> None:
            nonlocal done, due
            done = min(done + size * count(), problems)  # the other processes are about as far
            if self.so_far is not None and done < problems and time.monotonic() >= due:
                due = time.monotonic() + NEXT_WORD
                self.so_far(done, problems)

        return on_batch

    def _right(self, part: RunEnv, rollouts: SyncedRollouts, on_batch: Callable[[int], None]) -> list[bool | None]:
        config = self.plan.config
        mine = part.held_out[rank() :: count()]
        batch_size = config.rollout.batch_size or self.plan.batch_size
        if config.rollout.backend != "hf":
            batch_size = max(1, len(mine))  # an engine makes batches of its own
        player: Plays | None = (
            player_of(part.env, config.rollout, self.tokenizer, part.train)
            if self.agents is None
            else self.agents.player()
        )
        ask = partial(
            complete,
            tokenizer=self.tokenizer,
            episodes=mine,
            params=self._params,
            batch_size=batch_size,
            on_batch=on_batch,
            player=player,
        )
        with preserved_randomness():
            completions, _ = rollouts.roll_out(ask)
        return rows_of_all(self.judge(completions), "the held-out answers")
