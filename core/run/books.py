"""Keeps the books of a run: scores batches, judges them, measures held-out accuracy, records and reports all of it.

In: batches and metrics from the trainer. Out: files in the run directory, events for plugins, lines for the display.
Every process scores its own completions; the first one writes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from grpo.core.env.mixture import RunEnv
from grpo.core.env.scores import ELSEWHERE, right_by_env, scores_by_env
from grpo.core.measure.evaluate import complete
from grpo.core.plan import Plan
from grpo.core.policy.load import end_ids
from grpo.core.record.run_dir import (
    RolloutRow,
    RunDir,
    append_metrics,
    read_json,
    read_metrics,
    write_json,
    write_rollouts,
)
from grpo.core.rollout.turns.players import player_of
from grpo.core.rollout.types import SamplingParams
from grpo.core.run.canaries import CanaryWatch, fingerprint
from grpo.core.run.health import HealthWatch
from grpo.core.run.plot import plot_metrics
from grpo.core.run.progress import Progress
from grpo.core.scoring.early import EarlyCalls
from grpo.core.scoring.outcome import Outcome
from grpo.core.scoring.scorer import Scorer
from grpo.core.text.stats import proportion
from grpo.core.train.callbacks import metrics_row
from grpo.core.train.env_metrics import HELD_OUT, HELD_OUT_HIGH, HELD_OUT_LOW, PREFIX, env_metrics
from grpo.plugins.errors import RunError
from grpo.plugins.host import Host
from grpo.plugins.rubric import parts
from grpo.plugins.types import Completion, StepEnded

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from grpo.core.train.batch import Batch
    from grpo.core.train.trainer import PolicyTrainer

T = TypeVar("T")
REWARD_FAILED = "a reward failed; its completion is masked, never a zero."
VERIFIER_FAILED = "a verifier failed; what it failed on is left out of accuracy and counts as neither right nor wrong."


class Ledger:
    """The books of one run.

    Use it as a context manager: leaving it stops the scorer's workers.
    """

    def __init__(
        self, plan: Plan, host: Host, run_dir: RunDir, progress: Progress, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        self._plan = plan
        self._host = host
        self._run_dir = run_dir
        self._progress = progress
        self._tokenizer = tokenizer
        self._scorer = Scorer([*plan.rewards, *plan.verifiers], retries=plan.config.failures.retries)
        self._health = HealthWatch(plan.config.train.dtype)
        self._trainer: PolicyTrainer | None = None
        self._batch: Batch | None = None
        self._told_failures: set[str] = set()
        self._watch = self._canary_watch() if plan.canaries else None
        self._batches = 0

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scorer.close()

    def follow(self, trainer: PolicyTrainer) -> None:
        """Names the trainer whose model is evaluated and whose metrics are added to."""
        self._trainer = trainer

    def begin_scoring(self) -> EarlyCalls:
        """Returns what begins to score the completions of a batch as they end."""
        return self._scorer.early()

    def score(self, completions: Sequence[Completion], early: EarlyCalls) -> dict[str, list[Outcome]]:
        """Scores a batch with the run's rewards; a failing reward shows its first traceback once."""
        with _kept_random_numbers():
            outcomes = scores_by_env(self._scorer, self._plan.envs, completions, early)
        self._tell_failures()
        return outcomes

    def judge(self, completions: Sequence[Completion]) -> list[bool | None]:
        """Says of each completion whether it is right, None where nobody knows; a failing verifier is told of once."""
        with _kept_random_numbers():
            right = right_by_env(self._scorer, self._plan.envs, completions)
        self._tell_failures()
        return right

    def _tell_failures(self, what: str | None = None) -> None:
        rewards = {part.name for reward in self._plan.rewards for part in parts(reward)}
        for name, traceback in list(self._scorer.first_failure.items()):  # calls for the next batch may add to it
            if name not in self._told_failures:
                self._told_failures.add(name)
                self._progress.warned(f"{what or (REWARD_FAILED if name in rewards else VERIFIER_FAILED)}\n{traceback}")

    def record(self, batch: Batch) -> None:
        """Writes a generation's rollouts, and looks at its health and at the canaries.

        Raises:
            RunError: a reward or the verifier went wrong about its canaries, and stayed so; on every process.
        """
        assert self._trainer is not None
        if self._trainer.accelerator.is_main_process:
            self._keep(batch, self._trainer)
        if self._watch is not None and self._batches % self._plan.config.canaries.every == 0:
            self._look_at_canaries(self._watch, batch.step, self._trainer)
        self._batches += 1

    def _keep(self, batch: Batch, trainer: PolicyTrainer) -> None:
        self._batch = batch
        right = self.judge(batch.completions)
        if self._plan.verifiers:
            trainer.add_metric("accuracy", proportion(right).mean)
        if len(self._plan.envs) > 1:
            for name, value in env_metrics(batch, [part.name for part in self._plan.envs], right).items():
                trainer.add_metric(name, value)
        rows = rollout_rows(batch)
        write_rollouts(self._run_dir, batch.step, rows)
        for warning in self._health.batch(batch.step, batch.completions, [row.reward for row in rows]):
            self._progress.warned(warning)

    def _canary_watch(self) -> CanaryWatch:
        """Makes the watch; a resumed run goes on from what its canaries scored at the start."""
        section = self._plan.config.canaries
        recorded = read_json(self._run_dir.canaries) or {}
        known = recorded.get("fingerprint") == fingerprint(self._plan.canaries)
        if recorded and not known:
            self._progress.warned("the canaries are not those that the run started with; drift is measured from now.")
        plugins = [part for reward in self._plan.rewards for part in parts(reward)]
        titles: dict[tuple[str, str], str] = {
            (bound.spec.kind, bound.name): f"{bound.spec.kind} '{bound.name}' ({bound.distribution})"
            for bound in (*plugins, *self._plan.verifiers)
        }
        return CanaryWatch(
            self._plan.canaries,
            titles,
            tolerance=section.tolerance,
            share=section.share,
            patience=section.patience,
            baseline=recorded["scores"] if known else None,
        )

    def _look_at_canaries(self, watch: CanaryWatch, step: int, trainer: PolicyTrainer) -> None:
        """Scores the canaries on every process, so that all of them stop where one has to."""
        first = watch.baseline is None
        started = time.perf_counter()
        look = watch.look(self._scorer, step)
        self._tell_failures("a plugin failed on a canary.")
        accelerator = trainer.accelerator
        stops = [look.stop] if accelerator.num_processes == 1 else _gathered([look.stop])
        for name, value in {**look.metrics, "time/canaries": time.perf_counter() - started}.items():
            trainer.add_metric(name, value)
        if first and accelerator.is_main_process:
            record = {"fingerprint": fingerprint(self._plan.canaries), "scores": look.said}
            write_json(self._run_dir.canaries, record)
        for warning in look.warnings:
            self._progress.warned(warning)
        stop = next((text for text in stops if text is not None), None)
        if stop is not None:
            raise RunError(stop)

    def evaluate_start(self) -> None:
        """Measures held-out accuracy before the first step, as step 0 of the metrics."""
        found = self._held_out_accuracy(0)
        if found and self._main:
            append_metrics(self._run_dir, metrics_row(0, found))

    def evaluate(self, step: int) -> None:
        """Measures held-out accuracy between steps; it becomes a metric of the step."""
        assert self._trainer is not None
        for name, accuracy in self._held_out_accuracy(step).items():
            self._trainer.add_metric(name, accuracy)

    def step_ended(self, row: dict[str, Any]) -> None:
        """Writes the metrics of a step and tells everybody."""
        append_metrics(self._run_dir, row)
        self._host.observe(StepEnded(str(self._run_dir.path), row["step"], row))
        batch = self._batch
        if batch is None:
            self._progress.stepped(row, None, {})
        else:
            shown = row["step"] % len(batch.completions)
            said = {name: outcomes[shown] for name, outcomes in batch.outcomes.items()}
            scores = {name: _shown(outcome) for name, outcome in said.items() if outcome != ELSEWHERE}
            self._progress.stepped(row, batch.completions[shown], scores)
        for warning in self._health.metrics(row):
            self._progress.warned(warning)

    def plot(self) -> None:
        """Draws reward.png; a run that is over is not a failed one because its picture is."""
        try:
            plot_metrics(read_metrics(self._run_dir), self._run_dir.plot)
        except Exception as error:
            self._progress.warned(f"{self._run_dir.plot} could not be drawn: {type(error).__name__}: {error}")

    @property
    def _main(self) -> bool:
        return self._trainer is None or bool(self._trainer.accelerator.is_main_process)

    def _held_out_accuracy(self, step: int) -> dict[str, float]:
        """Greedy accuracy over the held-out episodes, and of each environment; as metrics, none without episodes."""
        parts = [part for part in self._plan.envs if part.held_out]
        several = len(self._plan.envs) > 1
        every: list[bool | None] = []
        metrics: dict[str, float] = {}
        for part in parts:
            right = self._held_out_right(part)
            every += right
            if several:
                found = proportion(right)
                metrics[f"{PREFIX}{part.name}/{HELD_OUT}"] = found.mean
                self._progress.evaluated(step, found, part.name)
        if not parts:
            return {}
        accuracy = proportion(every)
        if not several:
            self._progress.evaluated(step, accuracy)
        return {HELD_OUT: accuracy.mean, HELD_OUT_LOW: accuracy.low, HELD_OUT_HIGH: accuracy.high, **metrics}

    def _held_out_right(self, part: RunEnv) -> list[bool | None]:
        """Whether the greedy answers to an environment's held-out episodes are right; the processes share them."""
        assert self._trainer is not None
        accelerator = self._trainer.accelerator
        model = accelerator.unwrap_model(self._trainer.model)
        mine = part.held_out[accelerator.process_index :: accelerator.num_processes]
        config = self._plan.config
        params = SamplingParams(
            max_tokens=config.rollout.max_completion_length,
            eos_ids=end_ids(self._tokenizer, model),
            pad_id=self._tokenizer.pad_token_id,
            temperature=0.0,
        )
        batch_size = config.rollout.batch_size or self._plan.batch_size
        if config.rollout.backend != "hf":
            batch_size = max(1, len(mine))  # an engine makes batches of its own
        player = player_of(part.env, config.rollout, self._tokenizer, part.train)
        completions = self._trainer.between_steps(
            lambda rollouts: complete(rollouts, self._tokenizer, mine, params, batch_size=batch_size, player=player)
        )
        right = self.judge(completions)
        return right if accelerator.num_processes == 1 else _gathered(right)


def _gathered(values: list[T]) -> list[T]:
    """Returns the values of all processes."""
    from accelerate.utils import gather_object

    found: list[T] = gather_object(values)
    return found


def rollout_rows(batch: Batch) -> list[RolloutRow]:
    """Makes the records of one generation."""
    totals: Sequence[float] = batch.advantages.totals.tolist()
    values: Sequence[float] = batch.advantages.values.tolist()
    return [
        RolloutRow(
            step=batch.step,
            group=i // batch.group_size,
            prompt=json.dumps(list(completion.prompt), ensure_ascii=False),
            completion=completion.text,
            tokens=len(completion.token_ids),
            finish_reason=completion.finish_reason,
            columns=json.dumps(dict(completion.row), ensure_ascii=False, default=str),
            messages=json.dumps(list(completion.messages), ensure_ascii=False) if completion.info else None,
            info=json.dumps(dict(completion.info), ensure_ascii=False) if completion.info else None,
            reward=None if totals[i] != totals[i] else totals[i],
            advantage=values[i],
            outcomes={n: (o[i].kind, o[i].score, o[i].reason) for n, o in batch.outcomes.items() if o[i] != ELSEWHERE},
            env=completion.env,
        )
        for i, completion in enumerate(batch.completions)
    ]


def _kept_random_numbers() -> AbstractContextManager[None]:
    """Puts torch's random numbers back: a reward that seeds them here would have every step sample the same.

    Those of this process's GPU, not of all that the machine has: each of them would be started to look at.
    """
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    kept: AbstractContextManager[None] = torch.random.fork_rng(devices)
    return kept


def _shown(outcome: Outcome) -> str:
    return f"{outcome.score:.3g}" if outcome.score is not None else outcome.kind
