"""The GRPO and warm-up trainers: TRL's, with our generation, scoring and advantages in their places.

This is the only module that imports trl. What flows in: prompts with the number of their episode. What flows out: an
updated policy, and one `Batch` of scored completions per generation.

Seams of `trl.GRPOTrainer` that are overridden, each with a contract test:

- `_generate_single_turn`: token ids in, token ids and log-probabilities out (core/train/sampler.py).
- `rollout_func`: rollouts of several turns (core/train/played_rollouts.py).
- `_calculate_rewards`: completions in, [N, R] scores out, by the scorer; failures stay apart from zeros.
- `_generate_and_score_completions`: TRL's advantages are replaced by those of core/train/advantage.py, and failed
  completions leave the loss.
- `training_step`: does a step again whose completions came from other weights (core/train/guard.py).
- `_prepare_inputs`: begins to sample the next batch where one is sampled ahead (core/train/ahead.py).
- `compute_loss`: our objectives (core/train/objective.py) on the rows that have something to learn from; compares the
  log-probabilities of sampling and training on the first pass over a batch.
- `_get_per_token_logps_and_entropies`: without logits (core/train/head.py), and a prompt once for its completions.
- `_load_from_checkpoint`: also loads the trained adapter when a reference adapter stands beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate.utils import gather_object
from transformers import PreTrainedTokenizerBase, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer
from trl.models import unwrap_model_for_generation
from trl.trainer.utils import maybe_gather_lm_head_ctx

from grpo.core.plan import Plan
from grpo.core.rollout.limits import tolerance_of
from grpo.core.rollout.mismatch import Mismatch
from grpo.core.rollout.turns.players import players_of
from grpo.core.rollout.types import Rollouts
from grpo.core.scoring.early import EarlyCalls
from grpo.core.scoring.outcome import Outcome
from grpo.core.train.adamw import compensated_for
from grpo.core.train.ahead import OverlappedSteps, refuse_unfit_policy
from grpo.core.train.batch import Batch, advantages_of, batch_metrics, score_column, stop_on_failures, trained_of
from grpo.core.train.data import prompt_rows, taught_rows, unfinished_note
from grpo.core.train.forward import completion_logps
from grpo.core.train.guard import ProvenSteps, rolled_out
from grpo.core.train.head import attach_logps
from grpo.core.train.metrics import update_metrics, update_sums
from grpo.core.train.minibatch import counted, trained_rows
from grpo.core.train.objective import Counts, PassLoss, objective_of
from grpo.core.train.offload import Offload
from grpo.core.train.packing import can_pack
from grpo.core.train.played_rollouts import PlayedRollouts
from grpo.core.train.sampler import SampledRollouts
from grpo.core.train.shared_prefix import SharedPrefix
from grpo.core.train.trl_arguments import grpo_arguments, warmup_arguments
from grpo.plugins.errors import RunError
from grpo.plugins.types import Completion

T = TypeVar("T")
Score = Callable[[Sequence[Completion], EarlyCalls], dict[str, list[Outcome]]]
REFERENCE = "ref"  # what TRL calls the frozen copy of a warmed-up adapter


class PolicyTrainer(OverlappedSteps, SampledRollouts, PlayedRollouts, ProvenSteps, GRPOTrainer):  # type: ignore[misc]  # trl is not typed
    """`trl.GRPOTrainer` with our sampling, scoring and advantages.

    Args:
        model: the policy, a transformers or PEFT model.
        tokenizer: its tokenizer.
        plan: what to train on and how.
        rollouts: samples completions; it is not the trainer's to close.
        output_dir: where checkpoints go.
        begin_scoring: returns what begins to score the completions of a batch as they end.
        score: scores the whole batch, with what was begun.
        on_batch: receives every generation, on every process.
        callbacks: of transformers.
    """

    num_iterations: int

    def __init__(
        self,
        *,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        plan: Plan,
        rollouts: Rollouts,
        output_dir: Path,
        begin_scoring: Callable[[], EarlyCalls],
        score: Score,
        on_batch: Callable[[Batch], None],
        callbacks: Sequence[TrainerCallback],
    ) -> None:
        self._plan = plan
        self._rollouts = rollouts
        self._mismatch = Mismatch(None if rollouts.exact else tolerance_of(plan.config))
        self._doubted = False
        self._score = score
        self._on_batch = on_batch
        self._outcomes: dict[str, list[Outcome]] = {}
        self._completions: Sequence[Completion] = []
        self._begin_scoring = begin_scoring
        self._early = begin_scoring()
        self._seconds = {"generate": 0.0, "score": 0.0}
        self._training_logps: torch.Tensor | None = None
        packs = plan.config.train.share_prompts and can_pack(model.config)
        self._pack_for = model.config.get_text_config().hidden_size if packs else None
        self._objective = objective_of(plan.config.loss)
        self._offload = Offload() if plan.config.train.checkpointing == "offload" else None
        super().__init__(
            model=model,
            reward_funcs=[_named_reward(reward.name) for reward in plan.rewards],
            args=grpo_config(plan, output_dir),
            train_dataset=prompt_rows(plan),
            processing_class=tokenizer,
            callbacks=list(callbacks),
        )
        self.remove_callback(PrinterCallback)
        self.optimizer_cls_and_kwargs = compensated_for(model, self.args)
        # The balancing loss of mixture-of-experts models is TRL's, so they keep its head.
        self._own_head = plan.config.train.head == "grpo" and not self.aux_loss_enabled
        if plan.config.rollout.overlap:
            refuse_unfit_policy(model, corrects=self._own_head)
        if self._own_head:
            for policy in (self.model, self.ref_model):
                if policy is not None:
                    inner = policy.get_base_model() if hasattr(policy, "peft_config") else policy
                    attach_logps(inner, self.temperature, maybe_gather_lm_head_ctx)
        self._players = players_of(plan.envs, plan.config.rollout, tokenizer)
        if any(self._players.values()):
            self.rollout_func = self.play
        if not plan.config.train.warmup_steps and REFERENCE in getattr(model, "peft_config", {}):
            # A fresh adapter starts as the base model, so the reference is the disabled adapter and needs no copy.
            model.delete_adapter(REFERENCE)

    def rolled_out(self, roll_out: Callable[[], T]) -> T:
        """Syncs the rollout backend with the policy, calls what samples from it, and returns what that returned."""
        with self._for_generation() as model:
            done, synced = rolled_out(self._rollouts, model, roll_out, again=self._doubted)
        self._note(synced)
        return done

    def synced(self) -> None:
        """Syncs the rollout backend with the policy."""
        with self._for_generation() as model:
            self._note(self._rollouts.sync(model, again=self._doubted))

    def _for_generation(self) -> AbstractContextManager[Any]:
        """The policy, unwrapped, as it samples."""
        context: AbstractContextManager[Any] = unwrap_model_for_generation(
            self.model_wrapped,
            self.accelerator,
            gather_deepspeed3_params=self.args.ds3_gather_for_generation,
            gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
        )
        return context

    def _note(self, synced: Mapping[str, float]) -> None:
        for name, value in synced.items():
            self.add_metric(name, value)

    def _calculate_rewards(
        self,
        inputs: list[dict[str, Any]],
        prompts: list[Any],
        completions: list[Any],
        completion_ids_list: list[list[int]],
    ) -> torch.Tensor:
        start = time.perf_counter()
        self._outcomes = self._score(self._completions, self._early)
        self._seconds["score"] = time.perf_counter() - start
        columns = [score_column(self._outcomes[reward.name]) for reward in self._plan.rewards]
        local = torch.tensor(columns, dtype=torch.float32, device=self.accelerator.device).T.contiguous()
        gathered: torch.Tensor = self.accelerator.gather(local)
        return gathered

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self._starts = [self._plan.train[row["episode"]] for row in inputs]
        iterations = self.num_iterations
        if self._own_head:
            self.num_iterations = 1  # the first pass finds the old log-probabilities, TRL need not
        try:
            output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        finally:
            self.num_iterations = iterations
        batch = self._gather_batch()
        stop_on_failures(batch, self._plan.rewards, self._plan.config.failures.stop_share)
        here = self.accelerator.process_index * len(inputs)
        local = slice(here, here + len(inputs))
        trained = trained_of(batch, self._plan.config.loss)[local].to(output["completion_mask"].dtype)
        output["advantages"] = batch.advantages.values[local]
        output["completion_mask"] = output["completion_mask"] * trained[:, None]
        output["num_items_in_batch"] = self.accelerator.gather(counted(output).sum()).sum()
        # In the place of TRL's, which counts failures as missing.
        for name, value in batch_metrics(batch, self._plan.rewards).items():
            self._metrics["train"][name] = [value]
        self._on_batch(batch)
        return output

    def _gather_batch(self) -> Batch:
        """Collects the batch of all processes and computes its advantages, alike on each of them."""
        names = list(self._outcomes)
        rows = list(zip(self._completions, zip(*(self._outcomes[name] for name in names), strict=True), strict=True))
        rows = gather_object(rows) if self.accelerator.num_processes > 1 else rows
        outcomes = {name: [row[1][number] for row in rows] for number, name in enumerate(names)}
        scale = self._plan.config.loss.scale_rewards
        advantages = advantages_of(outcomes, self._plan.rewards, self.num_generations, scale, self.accelerator.device)
        return Batch(
            step=self.state.global_step + 1,
            completions=tuple(row[0] for row in rows),
            outcomes=outcomes,
            advantages=advantages,
            group_size=self.num_generations,
            generate_seconds=self._seconds["generate"],
            score_seconds=self._seconds["score"],
        )

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        policy = self.accelerator.unwrap_model(self.model if model is None else model)
        if REFERENCE in getattr(policy, "peft_config", {}):
            # Beside a reference in a folder of its own, transformers does not load the trained adapter.
            policy.load_adapter(resume_from_checkpoint, "default", is_trainable=True)
            policy.set_adapter("default")

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Writes no card: the run directory says more about the model than TRL's template."""

    def add_metric(self, name: str, value: float) -> None:
        """Adds a value to the metrics of the current step."""
        self._metrics["train"][name].append(value)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **images: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        if not self._own_head:
            asked = (model, input_ids, attention_mask, logits_to_keep, batch_size, compute_entropy, compute_aux_loss)
            result: tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]
            result = super()._get_per_token_logps_and_entropies(*asked, **images)
            self._training_logps = result[0].detach()
            return result
        size = batch_size or len(input_ids)
        with self.accelerator.autocast():
            parts = [
                completion_logps(
                    model,
                    input_ids[first : first + size],
                    attention_mask[first : first + size],
                    logits_to_keep,
                    pack_for=self._pack_for,
                    entropy=compute_entropy,
                )
                for first in range(0, len(input_ids), size)
            ]
        logps = torch.cat([part[0] for part in parts])
        entropies = [part[1] for part in parts if part[1] is not None]
        return logps, torch.cat(entropies) if entropies else None, None

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        kept = {p.untyped_storage().data_ptr() for p in model.parameters()} if self._offload else set()
        with self._offload.offloaded(kept) if self._offload else nullcontext():
            if self._own_head:
                loss = self._policy_loss(model, inputs)
            else:
                loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if not self._own_head and self._on_policy() and self._training_logps is not None:
            self.compare(self._training_logps, inputs["sampling_per_token_logps"], counted(inputs))
        if not torch.isfinite(loss):
            raise RunError(
                f"the loss of step {self.state.global_step + 1} is {loss.item()}. Lower train.lr, or train in float32 "
                "with train.dtype='float32'."
            )
        return loss

    def _on_policy(self) -> bool:
        """True on the first pass over a batch, before any optimizer step on it."""
        return bool(self._step // self.args.steps_per_generation % self.num_iterations == 0)

    def _policy_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        part = trained_rows(inputs, every_token=self.beta != 0.0)
        found, whole, settings = part.tensors, counted(inputs), self._plan.config.loss
        accumulation = self.current_gradient_accumulation_steps
        per_process = self.accelerator.num_processes * self.args.steps_per_generation / accumulation
        loss = PassLoss(
            self._objective,
            Counts(
                rows=len(whole),
                tokens=whole.sum(),
                batch_tokens=inputs["num_items_in_batch"] / per_process,
                longest=self.max_completion_length,
                accumulation=accumulation,
            ),
            mask=part.loss_mask(),
            advantages=found["advantages"],
            old_logps=None if self._on_policy() else found["old_per_token_logps"],
            ref_logps=found.get("ref_per_token_logps"),
            sampled=found["sampling_per_token_logps"],
            correction=settings.rollout_correction,
            cap=settings.rollout_correction_cap,
        )
        with self.accelerator.autocast():
            logps, entropies = completion_logps(
                model,
                part.input_ids(),
                part.attention_mask(),
                part.width,
                pack_for=self._pack_for,
                entropy=True,
                coefficients=loss.coefficients if loss.per_token else None,
            )
        if self._on_policy() and self.num_iterations > 1:  # for the next passes over this batch
            inputs["old_per_token_logps"] = torch.zeros_like(inputs["completion_mask"], dtype=logps.dtype)
            inputs["old_per_token_logps"][part.kept, : part.width] = logps.detach()
        value, importance = loss(logps)
        gathered = self.accelerator.gather(update_sums(value, entropies, loss.mask, importance)[None])
        for name, number in update_metrics(gathered, kl=value.kl is not None, weighted=importance is not None).items():
            self._metrics["train"][name].append(number)
        if self._on_policy() and not self.staleness:
            self.compare(logps.detach(), loss.sampled, loss.mask)
        return value.loss


class WarmUpTrainer(SharedPrefix, SFTTrainer):  # type: ignore[misc]  # trl is not typed
    """`trl.SFTTrainer` that computes once what all rows of a batch begin with."""


def grpo_config(plan: Plan, output_dir: Path) -> GRPOConfig:
    """Translates a plan into TRL's arguments."""
    return GRPOConfig(**grpo_arguments(plan, output_dir))


def warm_up(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    plan: Plan,
    output_dir: Path,
    callbacks: Sequence[TrainerCallback],
    warned: Callable[[str], None],
) -> bool:
    """Trains the policy in place on the environment's worked answers, before GRPO; returns whether it got to the end.

    Args:
        model: the policy.
        tokenizer: its tokenizer.
        plan: `train.warmup_steps` steps of `prompts_per_step * group_size` answers each.
        output_dir: a folder for what the trainer insists on writing.
        callbacks: of transformers.
        warned: told of worked answers that completions are too short for.
    """
    train, longest = plan.config.train, plan.config.rollout.max_completion_length
    rows = taught_rows(plan, tokenizer, train.warmup_steps * plan.batch_size)
    if note := unfinished_note(rows["completion_mask"], longest or 0):
        warned(note)
    trainer = WarmUpTrainer(
        model=model,
        args=SFTConfig(**warmup_arguments(plan, output_dir)),
        train_dataset=rows,
        processing_class=tokenizer,
        callbacks=list(callbacks),
    )
    trainer.shares_prompts = train.share_prompts
    trainer.remove_callback(PrinterCallback)
    trainer.optimizer_cls_and_kwargs = compensated_for(model, trainer.args)
    trainer.train()
    return bool(trainer.state.global_step >= trainer.state.max_steps)


def _named_reward(name: str) -> Callable[..., list[float]]:
    """A function that carries a reward's name to TRL, which scores nothing here."""

    def scored_elsewhere(**_: Any) -> list[float]:
        raise AssertionError("PolicyTrainer scores through _calculate_rewards")

    scored_elsewhere.__name__ = name
    return scored_elsewhere
