"""One batch ahead: the next rollouts are sampled while the policy trains on the present ones.

In: the prompts of the next batch. Out: its rollouts, with the proof that they came from the policy. It joins TRL's
trainer (core/train/trainer.py) and uses what that has.

Theory of operation. When a batch is about to train, the engine is synced with the policy and a thread samples the next
batch from it. The engine has weights of its own, so the forward and backward passes go on beside it; nothing is written
to the policy meanwhile. Before the optimizer step the thread is waited for, and a few of its rollouts are computed by
the policy, which still is the one that sampled them: further apart than rounding, and the batch is thrown away, the
engine synced in full and the batch sampled again. The optimizer then steps, so rollouts are always one step old when
they train, never more; the ratio of both policies weighs their tokens (truncated importance sampling). Scoring goes on
beside all of this.

The engine draws from torch's generators in this process. Nobody else may meanwhile, so a policy with dropout is
refused, and afterwards the generators are as they were.

A checkpoint holds the batch that is ready then (core/train/ahead_record.py), so a resumed run trains on the same
rollouts as one that was never interrupted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from grpo.core.env.episodes import Episode, in_groups
from grpo.core.planning.backends import tolerance_of
from grpo.core.planning.decide import Plan
from grpo.core.policy.load import encode_starts
from grpo.core.rollout.mismatch import Mismatch, difference_sums
from grpo.core.rollout.sync.fault import SyncFault
from grpo.core.rollout.types import SEEDS, Rollouts, evaluating
from grpo.core.scoring.early import EarlyCalls
from grpo.core.text.randomness import preserved_randomness
from grpo.core.train.ahead_record import AheadRecord, read_ahead, write_ahead
from grpo.core.train.sampler import Generation
from grpo.plugins.errors import RunError, UsageError

PROBED = 8  # rollouts of a batch that the policy computes once more


class Ahead:
    """A batch that a thread samples.

    Args:
        starts: the episodes of its rollouts.
        sample: samples it.
    """

    def __init__(self, starts: Sequence[Episode], sample: Callable[[], Generation]) -> None:
        self.starts = starts
        self.sample = sample
        self._found: Generation | None = None
        self._error: BaseException | None = None
        self._randomness = ExitStack()
        self._randomness.enter_context(preserved_randomness(int(torch.randint(SEEDS, ()))))
        self._thread = threading.Thread(target=self._run, name="grpo-ahead", daemon=True)
        self._thread.start()

    def wait(self) -> Generation:
        """Waits for the batch.

        Raises:
            BaseException: what the sampling raised.
        """
        self._thread.join()
        self._randomness.close()
        if self._error is not None:
            raise self._error
        assert self._found is not None
        return self._found

    def give_up(self) -> None:
        """Waits until nothing is sampled any more, and forgets the batch."""
        try:
            self.wait().early.drop()
        except Exception:
            self._error = None  # of a batch that nobody wants any more

    def _run(self) -> None:
        try:
            self._found = self.sample()
        except BaseException as error:  # it is raised where the batch is wanted
            self._error = error


@dataclass(frozen=True, slots=True)
class Ready:
    """A batch that was sampled ahead and proven.

    Attributes:
        starts: the episodes of its rollouts.
        generation: the rollouts.
        mean, largest: difference in nats between the engine that sampled it and the policy.
    """

    starts: Sequence[Episode]
    generation: Generation
    mean: float
    largest: float


class OverlappedSteps:
    """The part of the trainer that samples one batch ahead, where `rollout.overlap` says so."""

    _plan: Plan
    _rollouts: Rollouts
    _starts: Sequence[Episode]
    _doubted: bool
    _tokenizer: Any
    _step: int
    _buffered_inputs: Any
    _metrics: Any
    args: Any
    state: Any
    model: Any
    accelerator: Any
    train_dataset: Any
    generate: Callable[[Sequence[Episode], Sequence[Sequence[int]]], Generation]
    rolled_out: Callable[[Callable[[], Generation]], Generation]
    synced: Callable[[], None]
    mismatch_text: Callable[[tuple[float, float], Mismatch], str]
    add_metric: Callable[[str, float], None]
    _get_per_token_logps_and_entropies: Callable[..., Any]
    _begin_scoring: Callable[[], EarlyCalls]

    _ahead: Ahead | None = None
    _ready: Ready | None = None
    _recorded: AheadRecord | None = None  # what the checkpoint of a resumed run holds
    staleness = 0  # optimizer steps between the policy that sampled the present batch and the one that trains on it

    def train(self, *arguments: Any, **options: Any) -> Any:
        """Trains; however that ends, nothing is sampled any more afterwards."""
        try:
            return super().train(*arguments, **options)  # type: ignore[misc]
        finally:
            self._forget()

    def generation_of(self, prompt_ids: list[list[int]]) -> Generation:
        """Returns the present batch: as it was sampled ahead, else sampled now."""
        ready, self._ready = self._ready or self._resumed(prompt_ids), None
        if ready is not None and self._ahead is None and list(ready.starts) == list(self._starts):
            self.staleness = 1
            self.add_metric("sampling/sampling_logp_difference/mean", ready.mean)
            self.add_metric("sampling/sampling_logp_difference/max", ready.largest)
            found = ready.generation
        else:  # the first batch, or one that has to be sampled again
            self._forget()
            self.staleness = 0
            found = super().generation_of(prompt_ids)  # type: ignore[misc]
        if self._plan.config.rollout.overlap:
            self.add_metric("sampling/staleness", float(self.staleness))
        return found

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        anew = self._step % self.args.steps_per_generation == 0 or self._buffered_inputs is None
        inputs = super()._prepare_inputs(generation_batch)  # type: ignore[misc]
        if anew and self._plan.config.rollout.overlap:
            self._sample_ahead()
        return inputs

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """One micro batch; after the last one of a step, the batch that was sampled ahead is proven."""
        loss: torch.Tensor = super().training_step(model, inputs, num_items_in_batch)  # type: ignore[misc]
        if self._ahead is not None and self._step % self.args.steps_per_generation == 0:
            start = time.perf_counter()
            ahead, self._ahead = self._ahead, None
            self._ready = self._proven(ahead)
            waited = time.perf_counter() - start
            self.add_metric("time/overlap_wait", waited)
            self._metrics["train"]["step_time"][-1] += waited
        return loss

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)  # type: ignore[misc]
        ready = self._ready
        if ready is not None:
            folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            found = ready.generation
            write_ahead(folder, found.prompts, found.rollouts, mean=ready.mean, largest=ready.largest)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
        self._recorded = read_ahead(Path(resume_from_checkpoint))

    def _resumed(self, prompt_ids: Sequence[Sequence[int]]) -> Ready | None:
        """Returns the batch of the checkpoint, once, with its scoring begun; None where there is none for these."""
        recorded, self._recorded = self._recorded, None
        rollouts = recorded.rollouts_of(self._starts, prompt_ids) if recorded is not None else None
        if recorded is None or rollouts is None:
            return None
        early = self._begin_scoring()
        early.begin(range(len(rollouts)), [one.completion for one in rollouts])
        return Ready(self._starts, Generation(prompt_ids, rollouts, early), recorded.mean, recorded.largest)

    def _sample_ahead(self) -> None:
        """Begins to sample the batch after the present one, if there is one."""
        count = self._plan.config.train.prompts_per_step
        first = (self.state.global_step + 1) * count
        if first >= len(self.train_dataset):
            return
        rows = self.train_dataset[first : first + count]["episode"]
        size = self._plan.config.train.group_size
        starts = in_groups([self._plan.train[row] for row in rows for _ in range(size)], size)
        prompt_ids = encode_starts(self._tokenizer, starts)
        self.synced()
        self._ahead = Ahead(starts, partial(self.generate, starts, prompt_ids))

    def _proven(self, ahead: Ahead) -> Ready:
        """Waits for a batch, and samples it again where it did not come from the policy.

        Raises:
            RunError: again it did not.
        """
        before: tuple[float, float] | None = None
        try:
            found = ahead.wait()
        except SyncFault:
            pass  # the engine lost its weights; everything is handed over again below
        else:
            apart = self._apart(found)
            if not apart.too_far:
                return Ready(ahead.starts, found, apart.mean, apart.largest)
            before = apart.mean, apart.largest
            found.early.drop()
        self._doubted = True
        found = self.rolled_out(ahead.sample)
        self._doubted = False
        apart = self._apart(found)
        if apart.too_far:
            raise RunError(self.mismatch_text(before or (apart.mean, apart.largest), apart))
        self.add_metric("sync/batches_again", 1.0)
        return Ready(ahead.starts, found, apart.mean, apart.largest)

    def _apart(self, generation: Generation) -> Mismatch:
        """Compares log-probabilities of the policy, as it is now, with those of some rollouts."""
        count = min(PROBED, len(generation.rollouts))
        chosen = [number * len(generation.rollouts) // count for number in range(count)]
        prompts = [generation.prompts[number] for number in chosen]
        rollouts = [generation.rollouts[number] for number in chosen]
        before, after = max(map(len, prompts)), max(len(one.token_ids) for one in rollouts)
        ids = torch.full((count, before + after), self._tokenizer.pad_token_id, dtype=torch.long)
        attended = torch.zeros_like(ids)
        sampled, mask = torch.zeros(count, after), torch.zeros(count, after)
        for row, (prompt, one) in enumerate(zip(prompts, rollouts, strict=True)):
            end = before + len(one.token_ids)
            ids[row, before - len(prompt) : end] = torch.tensor([*prompt, *one.token_ids])
            attended[row, before - len(prompt) : end] = 1
            sampled[row, : len(one.token_ids)] = torch.tensor(one.logprobs)
            mask[row, : len(one.token_ids)] = torch.tensor(one.sampled, dtype=torch.float)
        device = self.accelerator.device
        with torch.no_grad(), evaluating(self.model):
            logps, _, _ = self._get_per_token_logps_and_entropies(
                self.model, ids.to(device), attended.to(device), after, batch_size=self.args.per_device_train_batch_size
            )
        apart = Mismatch(tolerance_of(self._plan.config))
        apart.add(difference_sums(logps.cpu(), sampled, mask))
        return apart

    def _forget(self) -> None:
        """Gives up what was sampled ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.give_up()
        self._ready = None


def refuse_unfit_policy(model: Any, *, corrects: bool) -> None:
    """Refuses a policy that draws random numbers while it trains, or whose loss does not correct.

    Args:
        model: the policy.
        corrects: its loss weighs rollouts of the step before.

    Raises:
        UsageError: names what it is.
    """
    if not corrects:
        raise UsageError(
            "--overlap with a mixture of experts: its loss is TRL's, which does not correct for rollouts of the step "
            "before. Leave --overlap out."
        )
    config = model.config.get_text_config()
    named = [f"{name} ({module.p:g})" for name, module in model.named_modules() if _drops(module)]
    named += [f"{key} ({value:g})" for key in ("attention_dropout",) if (value := getattr(config, key, 0.0) or 0.0)]
    if named:
        raise UsageError(
            f"--overlap: the policy has dropout, {named[0]}, which would draw from torch's generators while the engine "
            "does, and no run could be repeated. Set the model's dropout to 0, or leave --overlap out."
        )


def _drops(module: Any) -> bool:
    return isinstance(module, torch.nn.Dropout) and module.p > 0
