"""Trains on worked answers for some supervised steps before GRPO begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase, PrinterCallback, TrainerCallback
from transformers.integrations.deepspeed import unset_hf_deepspeed_config
from trl import SFTConfig, SFTTrainer

from grpo.core.plan import Plan
from grpo.core.policy.save import save_whole
from grpo.core.train.sft.data import taught_rows, unfinished_note, without_prefix
from grpo.core.train.trl_arguments import warmup_arguments
from grpo.core.train.update.adamw import compensated_for


class WarmUpTrainer(SFTTrainer):  # type: ignore[misc]  # trl is not typed
    """`trl.SFTTrainer` that computes the shared prefix of a batch once."""

    shares_prompts: bool

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Returns the loss of TRL's trainer, on what is left of the rows."""
        # Checkpointed layers keep no keys and values, and DDP takes one forward pass for each backward pass.
        if self.shares_prompts and not self.args.gradient_checkpointing and self.accelerator.num_processes == 1:
            with self.accelerator.autocast():
                inputs = without_prefix(model, inputs)
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)


def warm_up(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    plan: Plan,
    output_dir: Path,
    folder: Path,
    callbacks: Sequence[TrainerCallback],
    warned: Callable[[str], None],
) -> bool:
    """Trains on the environment's worked answers and saves the policy in `folder`; returns whether it got to the end.

    `output_dir`: scratch for the trainer. `warned`: told of answers that are too long, or that an environment failed
    at.
    """
    train, longest = plan.config.train, plan.config.rollout.max_completion_length
    rows = taught_rows(plan, tokenizer, train.warmup_steps * plan.batch_size, warned)
    if note := unfinished_note(rows["completion_mask"], longest):
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
    dtypes = {name: parameter.dtype for name, parameter in model.named_parameters()}
    trainer.train()
    if trainer.state.global_step < trainer.state.max_steps:
        return False
    trained, first = trainer.accelerator.unwrap_model(trainer.model), trainer.accelerator.is_main_process
    save_whole(trained, tokenizer, folder, dtypes, first=first)
    unset_hf_deepspeed_config()  # else what loads next would be sharded by the settings of the warm-up
    return True
