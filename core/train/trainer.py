"""Subclasses TRL's GRPOTrainer: its loop, optimizer and checkpoints around our parts, which know nothing of TRL.

    Sampler          core/train/sampling/build.py          episodes → rollouts
    Collector        core/train/collect.py                 rollouts → outcomes → advantages → tensors
    reference_logps  core/train/update/forward.py          tensors → log-probabilities of the frozen policy
    PolicyLoss       core/train/update/policy_loss.py      tensors → loss
    StepGuard        core/train/sampling/guard.py          micro batches → a step that is verified, or repeated
    LogprobCheck     core/train/sampling/guard.py          the same where the policy itself samples
    UpdateFigures    core/train/update/metrics.py          sums over tokens → means of the step
    StepReport       core/train/report.py                  figures → metrics of the step
    TrainedTokens    core/train/batch/token_record.py      first pass → what each token was trained with

Each overridden seam of TRL has a contract test (tests/core/train/test_seams.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedTokenizerBase, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.models import unwrap_model_for_generation
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import maybe_gather_lm_head_ctx

from grpo.core.env.episodes import Episode, in_groups
from grpo.core.plan import Plan
from grpo.core.policy.blocks import can_pack
from grpo.core.policy.load import end_ids
from grpo.core.policy.modules import without_adapter
from grpo.core.policy.save import save_whole
from grpo.core.policy.whole import is_sharded, passes_of_its_own, unsharded
from grpo.core.processes.sharding import asked_sharding, refuse_unsharded
from grpo.core.processes.spinning import beside_workers
from grpo.core.record.trained import TrainedRow
from grpo.core.rollout.limits import tolerance_of
from grpo.core.rollout.synced import SyncedRollouts
from grpo.core.rollout.types import Rollouts, evaluating
from grpo.core.train.batch.batch import Batch
from grpo.core.train.batch.tensors import Tensors, counted, filled_up, micro_batches, whole_ids, whole_mask
from grpo.core.train.batch.token_record import ROWS, TrainedTokens, numbered
from grpo.core.train.collect import Collector
from grpo.core.train.report import UPDATE_SECONDS, StepReport, update_seconds
from grpo.core.train.sampling.ahead import refuse_unfit_policy
from grpo.core.train.sampling.build import PolicyAccess, build_sampler, turn_of
from grpo.core.train.sampling.guard import LogprobCheck, StepGuard, difference_sums
from grpo.core.train.sampling.partial import refuse_uncorrected
from grpo.core.train.sampling.prompts import Prompts
from grpo.core.train.sft.data import placeholder_prompts
from grpo.core.train.trl_arguments import grpo_arguments, refuse_unfit_head
from grpo.core.train.types import BatchScoring
from grpo.core.train.update.adamw import compensated_for, rise_from_above_zero
from grpo.core.train.update.forward import REFERENCE, LogProbs, reference_logps
from grpo.core.train.update.head import attach_logps
from grpo.core.train.update.layers import faster_layers
from grpo.core.train.update.offload import Offload
from grpo.core.train.update.policy_loss import PolicyLoss
from grpo.plugins.errors import RunError

if TYPE_CHECKING:
    from torch.distributed.checkpoint.api import CheckpointException

    from grpo.core.rollout.agents.open import AgentSide

Received = Callable[[Batch], Mapping[str, float]]
Trained = Callable[[int, Sequence[TrainedRow]], None]
BetweenSteps = Callable[[int, SyncedRollouts], Mapping[str, float]]


class PolicyTrainer(GRPOTrainer):  # type: ignore[misc]  # trl is not typed
    """`trl.GRPOTrainer` around our parts. Close its `sampler` when training ends, however it ends.

    `rollouts`: the caller closes it. `received`: gets every batch, `trained`: the first optimizer step on a batch with
    its tokens' record, both on every process. `between_steps`: gets each step that ended and `rollouts`. The first and
    the last return metrics. `agents`: plays all episodes; None: each environment plays its own.
    """

    def __init__(
        self,
        *,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        plan: Plan,
        rollouts: Rollouts,
        output_dir: Path,
        scoring: BatchScoring,
        received: Received,
        trained: Trained,
        between_steps: BetweenSteps,
        callbacks: Sequence[TrainerCallback],
        agents: AgentSide | None = None,
    ) -> None:
        super().__init__(
            model=model,
            reward_funcs=[_named_reward(reward.name) for reward in plan.rewards],
            args=grpo_config(plan, output_dir),
            train_dataset=placeholder_prompts(plan),
            processing_class=tokenizer,
            callbacks=list(callbacks),
        )
        _restore_numbered_cpus()
        self.remove_callback(PrinterCallback)
        self.optimizer_cls_and_kwargs = compensated_for(model, self.args)
        if not plan.config.train.warmup_steps and REFERENCE in getattr(model, "peft_config", {}):
            # A fresh adapter starts as the base model, so the reference is the disabled adapter and needs no copy.
            model.delete_adapter(REFERENCE)
        # The balancing loss of mixture-of-experts models is TRL's, so they keep its head.
        self._own_head = plan.config.train.head == "grpo" and not self.aux_loss_enabled
        refuse_unfit_head("grpo" if self._own_head else "trl", plan.loss)
        # As they were loaded: FSDP keeps 16 bits as 32.
        self._dtypes = {name: parameter.dtype for name, parameter in model.named_parameters()}
        ahead = plan.config.rollout.ahead
        if ahead:
            refuse_unfit_policy(model, corrects=self._own_head)
        if plan.config.rollout.partial:
            refuse_uncorrected(corrects=self._own_head)
        if self._own_head:
            for policy in (self.model, self.ref_model):
                if policy is not None:
                    inner = without_adapter(self.accelerator.unwrap_model(policy))
                    attach_logps(inner, self.temperature, maybe_gather_lm_head_ctx)
        self._plan = plan
        self._received = received
        self._trained = trained
        self._tokens = TrainedTokens()
        self._between_steps = between_steps
        self._report = StepReport()
        self._micro: list[Tensors] | None = None
        self._passes = 0  # backward passes since the run started or resumed
        self._both_passes: ExitStack | None = None  # what lasts from a forward pass to the end of its backward pass
        self._staleness = 0
        self._doubted = False  # whether the weights that the backend was handed are in doubt
        self._step_began: float | None = None
        self._save_began: float | None = None
        packs = plan.config.train.share_prompts and self._own_head and can_pack(model.config)
        pack_for = model.config.get_text_config().hidden_size if packs else None
        ours = LogProbs(pack_for, self.args.per_device_train_batch_size, self.accelerator.autocast)
        self._logps: Callable[[Any, Tensors], torch.Tensor] = ours if self._own_head else self._trl_logps
        self._loss_logps: torch.Tensor | None = None  # log-probabilities of TRL's own loss
        self._offload = Offload() if plan.config.train.checkpointing == "offload" else None
        self._loss = PolicyLoss(
            plan.loss,
            plan.config.loss,
            plan.config.loss.rollout_correction,
            longest=plan.longest_sampled,
            accumulation=plan.accumulation,
            processes=self.accelerator.num_processes,
            pack_for=pack_for,
            autocast=self.accelerator.autocast,
        )
        turn = turn_of(plan)
        self.rollouts = SyncedRollouts(rollouts, self._as_it_samples, turn)
        tolerance, gather = tolerance_of(plan.config), self.accelerator.gather
        self._guard: StepGuard | LogprobCheck = StepGuard(tolerance, self, gather, self.rollouts.differing)
        if rollouts.exact:
            self._guard = LogprobCheck(tolerance, self, gather, self._apart_again, model.config.model_type)
        ends, device = end_ids(tokenizer, model), self.accelerator.device
        policy = PolicyAccess(
            rollouts=self.rollouts,
            unwrapped=self._unwrapped,
            computing=self._computing,
            attach=lambda copy: attach_logps(without_adapter(copy), self.temperature),
            logps=self._logps,
            probe=self._probed,
            gather=gather,
            device=device,
        )
        self.prompts = Prompts(plan)
        self.sampler = build_sampler(
            plan, policy, rollouts, turn, tokenizer, ends, scoring, self.prompts, self._episodes, agents
        )
        self._collector = Collector(
            plan,
            self.sampler,
            scoring,
            end_ids=ends,
            pad_id=tokenizer.pad_token_id,
            device=device,
            own_head=self._own_head,
        )

    # Where training stands: `Cursor` of core/train/sampling/guard.py.

    @property
    def step(self) -> int:
        """The current optimizer step, from 1."""
        return int(self.state.global_step) + 1

    @property
    def done(self) -> int:
        """Micro batches of the step that have had their backward pass; 0 after the last one."""
        return self._passes % self._plan.accumulation

    def rewind(self) -> None:
        """Returns to the first micro batch of the step, whose completions are sampled anew."""
        self.model.zero_grad()
        self._report.clear()
        self._loss.figures.clear()
        self._tokens.clear()
        self._metrics["train"].clear()  # of TRL's own loss
        self._micro = None
        self._passes -= self.done or self._plan.accumulation
        self._doubted = True

    @property
    def _first_pass(self) -> bool:
        return self._passes // self._plan.accumulation % self._plan.config.loss.num_iterations == 0

    # The seams.

    def _prepare_inputs(self, generation_batch: Any) -> Tensors:
        if self._micro is None or (self.done == 0 and self._first_pass):
            self._micro = self._collected(self._episodes(self.step))
            self._report.add(self.sampler.ahead(self.step, self._episodes))
        return self._micro[self.done]

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Trains on a micro batch; before the step's last one ends, sampling from its weights is settled."""
        if self._step_began is None:
            self._step_began = time.perf_counter()
            if self._save_began is not None:  # it is made whole by now
                self._report.add({"time/checkpoint": self._step_began - self._save_began})
                self._save_began = None
        loss, differences = self._guard.micro_batch(partial(self._backward, model, inputs, num_items_in_batch))
        self._report.add(differences)
        if self.done == 0:
            self._report.add(self._loss.figures.take(self.accelerator.gather))
            if (self._passes // self._plan.accumulation - 1) % self._plan.config.loss.num_iterations == 0:
                self._trained(self.step, self._tokens.take())
            self._report.add(self.sampler.settle(self.step))
        return loss

    def compute_loss(
        self, model: Any, inputs: Tensors, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Returns the loss of a micro batch; the first pass over it is compared with its sampler."""
        if self._both_passes is not None:
            # Not before: what `training_step` begins with, sampling, has other faster layers.
            self._both_passes.enter_context(faster_layers(model))
        with self._offloaded(model):
            if self._own_head:
                value = self._loss(model, inputs, first_pass=self._first_pass)
                loss, logps, sampled, mask = value.loss, value.logps, value.sampled, value.mask
                rows, worth = inputs[ROWS][value.part.kept], value.part.tensors["advantages"]
            else:
                loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
                assert self._loss_logps is not None
                logps, sampled, mask = self._loss_logps, inputs["sampling_per_token_logps"], counted(inputs)
                rows, worth = inputs[ROWS], inputs["advantages"]
        if self._first_pass:
            self._tokens.add(rows, logps, sampled, mask, worth)
        if self._first_pass and not self._staleness:
            self._report.replace(self._guard.compare(logps, sampled, mask))
        if not torch.isfinite(loss):
            raise RunError(
                f"the loss of step {self.step} is {loss.item()}. Lower train.lr, or train in float32 "
                "with train.dtype='float32'."
            )
        return loss

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        """Logs a step with its report; the summary of the whole training has neither loss nor report."""
        if "loss" in logs:
            changed = time.perf_counter()  # the weights, by the optimizer
            assert self._step_began is not None
            self._report.add({"time/step": changed - self._step_began})
            self._step_began = None
            if measured := self._between_steps(self.state.global_step, self.rollouts):
                self._report.add({**measured, "time/held_out": time.perf_counter() - changed})
            figures = self._report.take()
            logs = {**logs, **figures, UPDATE_SECONDS: update_seconds(figures)}
        super().log(logs, start_time)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Makes the first optimizer step learn, too."""
        made, scheduler = self.lr_scheduler is None, super().create_scheduler(num_training_steps, optimizer)
        if made:
            rise_from_above_zero(scheduler, self.args.get_warmup_steps(num_training_steps))
        return scheduler

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Writes all weights of a checkpoint; all processes call it."""
        self.save_final(Path(output_dir or self.args.output_dir), shared=True)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        self._save_began = time.perf_counter()
        try:
            super()._save_checkpoint(model, trial)
        except _shard_failures() as error:  # of FSDP's shards, on all processes; it is no `Exception`
            process, (cause, _) = min(error.failures.items())
            raise RuntimeError(f"process {process} cannot write its shard of the checkpoint: {cause}") from error
        self.prompts.save(Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}")
        self.sampler.save(Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}")

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        policy = self.accelerator.unwrap_model(self.model if model is None else model)
        if REFERENCE in getattr(policy, "peft_config", {}) and not self.is_fsdp_enabled:
            # Beside a reference in a folder of its own, transformers does not load the trained adapter.
            policy.load_adapter(resume_from_checkpoint, "default", is_trainable=True)
            policy.set_adapter("default")

    def _get_per_token_logps_and_entropies(self, *arguments: Any, **options: Any) -> Any:
        """Sees the log-probabilities that TRL trains on with its own head and loss (train.head='trl')."""
        result = super()._get_per_token_logps_and_entropies(*arguments, **options)
        self._loss_logps = result[0].detach()
        return result

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Writes no card: the run directory says more about the model than TRL's template."""

    # What others need of the policy.

    def save_final(self, folder: Path, *, shared: bool = False) -> None:
        """Writes the policy with its tokenizer, atomically unless `shared`. All processes call it."""
        policy, first = self.accelerator.unwrap_model(self.model), self.accelerator.is_main_process
        save_whole(policy, self.processing_class, folder, self._dtypes, first=first, shared=shared)

    def refuse_unsharded(self) -> None:
        """Raises RunError when the wrapped policy is not sharded as the launcher asked for."""
        refuse_unsharded(asked_sharding(), self.model_wrapped, sharded=is_sharded(self.model))

    # What the parts need of TRL.

    def _backward(self, model: Any, inputs: Any, num_items_in_batch: Any) -> torch.Tensor:
        with ExitStack() as self._both_passes:
            loss: torch.Tensor = super().training_step(model, inputs, num_items_in_batch)
        self._both_passes = None
        self._passes += 1
        return loss

    def _episodes(self, step: int) -> list[Episode]:
        size = self._plan.config.train.group_size
        every = in_groups([episode for episode in self.prompts.of_step(step) for _ in range(size)], size)
        share = len(every) // self.accelerator.num_processes
        return every[self.accelerator.process_index * share :][:share]

    @beside_workers()
    def _collected(self, episodes: Sequence[Episode]) -> list[Tensors]:
        collected = self._collector.collect(episodes, self.step, again=self._doubted)
        self._doubted = False
        self.prompts.note_batch(collected.batch)
        self._staleness = collected.staleness
        self.state.num_input_tokens_seen += collected.tokens
        self._report.add({**collected.metrics, "num_tokens": self.state.num_input_tokens_seen})
        with disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
            if not self._own_head and self.num_iterations > 1:  # our own loss finds them on its first pass
                collected.tensors["old_per_token_logps"] = self._logps(self.model, collected.tensors)
            if self.beta != 0.0:
                policy = self.accelerator.unwrap_model(self.model)
                collected.tensors["ref_per_token_logps"] = reference_logps(
                    self._logps, collected.tensors, frozen=self.ref_model, wrapped=self.model, policy=policy
                )
        began = time.perf_counter()
        received = self._received(collected.batch)
        self._report.add({**received, "time/record": time.perf_counter() - began - received.get("time/canaries", 0.0)})
        rollouts = self._plan.batch_size // self.accelerator.num_processes
        dealt = filled_up(numbered(collected.tensors), rollouts)
        loss = self._plan.loss.spec
        # TRL's own head adds how evenly a router spreads a micro batch.
        mixed = loss.average == "micro_batch" or loss.every_row or not self._own_head
        return micro_batches(dealt, self._plan.accumulation, shuffled=mixed)

    @contextmanager
    def _as_it_samples(self) -> Iterator[Any]:
        """Yields the unwrapped policy, with whole weights where it samples itself."""
        if not self.rollouts.exact:
            yield self._unwrapped()
            return
        whole = unwrap_model_for_generation(
            self.model_wrapped,
            self.accelerator,
            gather_deepspeed3_params=self.args.ds3_gather_for_generation,
            gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
        )
        with whole as policy, unsharded(policy), passes_of_its_own(self.model_wrapped):
            yield policy

    def _unwrapped(self) -> Any:
        return self.accelerator.unwrap_model(self.model_wrapped)

    @contextmanager
    def _computing(self, version: Any) -> Iterator[Any]:
        with self.accelerator.autocast():
            yield version

    def _probed(self, tensors: Tensors) -> torch.Tensor:
        with evaluating(self.model):
            return self._logps(self.model, tensors)

    def _apart_again(self) -> torch.Tensor:
        batches = self._micro or []
        again = [(self._probed(batch), batch["sampling_per_token_logps"], counted(batch)) for batch in batches]
        return torch.cat([difference_sums(*each) for each in again])

    def _trl_logps(self, model: Any, tensors: Tensors) -> torch.Tensor:
        with torch.no_grad(), faster_layers(model):
            logps: torch.Tensor = self._get_per_token_logps_and_entropies(
                model,
                whole_ids(tensors),
                whole_mask(tensors),
                tensors["completion_ids"].shape[1],
                batch_size=self.args.per_device_train_batch_size,
            )[0]
        return logps

    def _offloaded(self, model: Any) -> AbstractContextManager[None]:
        if self._offload is None:
            return nullcontext()
        return self._offload.offloaded({parameter.untyped_storage().data_ptr() for parameter in model.parameters()})


def grpo_config(plan: Plan, output_dir: Path) -> GRPOConfig:
    return GRPOConfig(**grpo_arguments(plan, output_dir))


def _on_a_numbered_cpu(storage: Any, location: str) -> Any:
    """Restores tensors saved for cpu:0, as each of several CPU processes calls its device; torch knows `cpu`."""
    return storage if location.startswith("cpu:") else None


@cache
def _restore_numbered_cpus() -> None:
    torch.serialization.register_package(11, lambda storage: None, _on_a_numbered_cpu)


def _named_reward(name: str) -> Callable[..., list[float]]:
    """Returns a function that carries a reward's name to TRL, which scores nothing here."""

    def scored_elsewhere(**_: Any) -> list[float]:
        raise AssertionError("a Collector scores for PolicyTrainer")

    scored_elsewhere.__name__ = name
    return scored_elsewhere


def _shard_failures() -> type[CheckpointException]:
    """Returns the class that a failed write raises, whose package is loaded only once something was raised."""
    from torch.distributed.checkpoint.api import CheckpointException

    return CheckpointException
