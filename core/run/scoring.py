"""Scores a process's completions and decides which are correct; a failing plugin is reported once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch

from grpo.core.env.scores import scores_by_env, verdicts_by_env
from grpo.core.plan import Plan
from grpo.core.processes.group import gathered
from grpo.core.processes.rank import count, rank
from grpo.core.scoring.early import EarlyCalls
from grpo.core.scoring.outcome import Judgement, Outcome
from grpo.core.scoring.process_state import ProcessState
from grpo.core.scoring.scorer import Scorer
from grpo.core.train.batch.batch import Batch, stop_on_failures
from grpo.core.train.part import Part
from grpo.plugins._spec.binding import BoundVerifier
from grpo.plugins.errors import RunError
from grpo.plugins.rubric import parts
from grpo.plugins.types import Completion, Verdict

REWARD_FAILED = "a reward failed; its completion is masked, never a zero."
CHANGED = (
    "a plugin changed global state of this process, which was restored: {}. A reward with isolation='process' "
    "has a process of its own."
)
VERIFIER_FAILED = "a verifier failed; the completions that it failed on are excluded from accuracy."


class Scoring(Part):
    """The rewards and verifiers of one run. `run`: its directory, for messages."""

    def __init__(self, plan: Plan, warned: Callable[[str], None], run: str = "RUN") -> None:
        self.scorer = Scorer([*plan.rewards, *plan.verifiers], retries=plan.config.failures.retries)
        self._bound = plan.rewards
        self._envs = plan.envs
        self._group_size = plan.config.train.group_size
        self._first_row = plan.batch_size // count() * rank()
        self._rewards = {part.name for reward in plan.rewards for part in parts(reward)}
        self._warned = warned
        self._run = run
        self._reported: set[str | tuple[str, str]] = set()
        self._state: ProcessState | None = None  # when the batch that is scored next was begun
        self._stop_share = plan.config.failures.stop_share
        self._fault: str | None = None

    def close(self) -> None:
        """Stops the scorer's workers."""
        self.scorer.close()

    def on_batch(self, batch: Batch) -> dict[str, float]:
        """Stops a run whose verifiers or rewards failed too often."""
        self.stop_on_faults()
        stop_on_failures(batch, self._bound, self._stop_share, self._run)
        return {}

    def begin(self) -> EarlyCalls:
        self._state = ProcessState(thread=False)  # gradients are off while the policy samples
        return self.scorer.early(self._group_size, self._first_row)

    def score(self, completions: Sequence[Completion], early: EarlyCalls | None = None) -> dict[str, list[Outcome]]:
        """Scores a batch, on all processes alike; reward name to one outcome per completion."""
        with _kept_random_numbers():
            outcomes = scores_by_env(self.scorer, self._envs, completions, early, self._first_row)
        begun, self._state = self._state, None
        if begun is not None:
            self.scorer.changed |= dict.fromkeys(begun.put_back())
        for failures in gathered(dict(self.scorer.first_failure), "the scores"):  # the first process tells of them all
            self.scorer.first_failure |= {**failures, **self.scorer.first_failure}
        self.tell_failures()
        return outcomes

    def judge(self, completions: Sequence[Completion]) -> list[Verdict]:
        """Returns what the verifiers say of each completion."""
        with _kept_random_numbers():
            verdicts = verdicts_by_env(self.scorer, self._envs, completions, self._look_for_faults)
        self.tell_failures()
        return verdicts

    def judge_held_out(self, completions: Sequence[Completion]) -> list[bool | None]:
        """Returns whether each is right, None if undecided. Raises RunError as `stop_on_faults`."""
        verdicts = self.judge(completions)
        self.stop_on_faults()
        return [verdict.ok for verdict in verdicts]

    def stop_on_faults(self) -> None:
        """Stops a run whose verifier failed too often, on all processes alike: its accuracy is unknown."""
        for fault in gathered(self._fault, "what the verifiers say"):  # the first process alone judges what was sampled
            if fault is not None:
                raise RunError(fault)

    def _look_for_faults(self, verifier: BoundVerifier, judgements: Sequence[Judgement]) -> None:
        failures = [judgement for judgement in judgements if judgement.kind == "failure"]
        if len(failures) > self._stop_share * len(judgements):
            self._fault = (
                f"verifier '{verifier.name}' ({verifier.distribution}) failed on {len(failures)} of {len(judgements)} "
                f"completions, over failures.stop_share {self._stop_share:g}. The first reason: "
                f"{str(failures[0].reason).rstrip('.')}. Fix the verifier, then resume the run."
            )

    def tell_failures(self, what: str | None = None) -> None:
        """Reports once what plugins failed on or changed."""
        for name, traceback in list(self.scorer.first_failure.items()):  # calls for the next batch may add to it
            if name not in self._reported:
                self._reported.add(name)
                kind = REWARD_FAILED if name in self._rewards else VERIFIER_FAILED
                self._warned(f"{what or kind}\n{traceback}")
        new = [name for name in self.scorer.changed if name not in self._reported]
        if new:
            self._reported |= {*new}
            self._warned(CHANGED.format(", ".join(new)))


def _kept_random_numbers() -> AbstractContextManager[None]:
    """Restores torch's random numbers, of this process's GPU, too: a reward that seeds them changes no sampling."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    kept: AbstractContextManager[None] = torch.random.fork_rng(devices)
    return kept
