"""The seams of TRL that we stand on, each by its name and form: whoever takes a new release in sees which one moved."""

from __future__ import annotations

import inspect
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

TRIED = "1.16"
SEAMS = {
    "_prepare_inputs": ["generation_batch"],
    "compute_loss": ["model", "inputs", "return_outputs", "num_items_in_batch"],
    "training_step": ["model", "inputs", "num_items_in_batch"],
    "log": ["logs", "start_time"],
    "create_scheduler": ["num_training_steps", "optimizer"],
    "save_model": ["output_dir", "_internal_call"],
    "_save_checkpoint": ["model", "trial"],
    "_load_from_checkpoint": ["resume_from_checkpoint", "model"],
}


def told(name: str, found: object) -> str:
    return f"TRL {version('trl')} (tried: {TRIED}) changed {name}: {found}. CONTRIBUTING.md says how a seam is changed."


@pytest.mark.core
@pytest.mark.parametrize("name", SEAMS)
def test_the_seam_is_where_trl_keeps_it(name: str) -> None:
    from trl import GRPOTrainer

    from grpo.core.train.trainer import PolicyTrainer

    theirs = list(inspect.signature(getattr(GRPOTrainer, name)).parameters)[1:]
    assert theirs == SEAMS[name], told(name, theirs)
    assert list(inspect.signature(getattr(PolicyTrainer, name)).parameters)[1:] == SEAMS[name]


@pytest.mark.core
def test_the_trainer_overrides_its_seams_and_nothing_else_of_trl() -> None:
    """A method of ours that by chance has the name of one of TRL's or transformers' would be called by them."""
    from trl import GRPOTrainer

    from grpo.core.train.trainer import PolicyTrainer

    theirs = {name for name in vars(PolicyTrainer) if hasattr(GRPOTrainer, name) and not name.startswith("__")}
    assert theirs == {*SEAMS, "_get_per_token_logps_and_entropies", "create_model_card"}, told("names", theirs)
    assert PolicyTrainer.__bases__ == (GRPOTrainer,)


@pytest.mark.core
def test_what_is_called_of_trl_takes_what_it_is_given() -> None:
    from trl import GRPOTrainer
    from trl.models import unwrap_model_for_generation
    from trl.models.utils import disable_gradient_checkpointing
    from trl.trainer.utils import maybe_gather_lm_head_ctx

    given = {
        unwrap_model_for_generation: [
            "model",
            "accelerator",
            "gather_deepspeed3_params",
            "gradient_checkpointing_kwargs",
        ],
        disable_gradient_checkpointing: ["model", "gradient_checkpointing_kwargs"],
        GRPOTrainer._get_per_token_logps_and_entropies: [
            "model",
            "input_ids",
            "attention_mask",
            "logits_to_keep",
            "batch_size",
        ],
    }
    for function, names in given.items():
        parameters = list(inspect.signature(function).parameters)
        assert [name for name in names if name not in parameters] == [], told(function.__name__, parameters)
    assert callable(maybe_gather_lm_head_ctx)


@pytest.mark.core
def test_trl_still_holds_what_the_trainer_reads_of_it(tiny_model: Path, vowels: str, tmp_path: Path) -> None:
    """Attributes that a run with a reference policy and several passes uses, looked up on a trainer that TRL made."""
    from prompt_rows import prompt_rows
    from trl import GRPOTrainer

    from grpo.core.config.schema import parse_config
    from grpo.core.planning.decide import make_plan
    from grpo.core.policy.load import load_policy, load_tokenizer
    from grpo.core.train.trainer import grpo_config
    from grpo.plugins.host import Host

    tree: dict[str, Any] = {"env": "gsm8k", "dataset": "embedded", "model": str(tiny_model), "rewards": [vowels]}
    tree |= {"loss": {"beta": 0.1, "num_iterations": 2}, "train": {"steps": 2}, "out": str(tmp_path / "run")}
    plan = make_plan(parse_config(tree), Host.discover())
    trainer = GRPOTrainer(
        model=load_policy(str(tiny_model), "float32", plan.config.lora),
        reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
        args=grpo_config(plan, tmp_path),
        train_dataset=prompt_rows(plan),
        processing_class=load_tokenizer(str(tiny_model)),
    )
    read = ["model", "ref_model", "model_wrapped", "accelerator", "args", "state", "train_dataset", "beta"]
    read += ["temperature", "num_iterations", "aux_loss_enabled", "_metrics"]
    assert [name for name in read if not hasattr(trainer, name)] == [], told("its attributes", vars(trainer).keys())
    assert trainer.ref_model is not None
    assert trainer.beta == 0.1
    assert trainer.num_iterations == 2
    assert trainer.state.num_input_tokens_seen == 0
    assert hasattr(trainer._metrics["train"], "clear")
    rows = next(iter(trainer.get_train_dataloader()))
    size = plan.config.train.group_size
    assert len(rows) == plan.batch_size
    groups = [rows[first : first + size] for first in range(0, len(rows), size)]
    asked = [{row["prompt"][-1]["content"] for row in group} for group in groups]
    assert all(len(prompts) == 1 for prompts in asked), "members of a group are not adjacent"


@pytest.mark.core
def test_the_first_optimizer_step_of_a_schedule_that_rises_learns(
    tiny_model: Path, vowels: str, tmp_path: Path
) -> None:
    """TRL's schedule gives it a rate of 0; nothing else of the trainer is made."""
    import torch

    from grpo.core.config.schema import parse_config
    from grpo.core.planning.decide import make_plan
    from grpo.core.train.trainer import PolicyTrainer, grpo_config
    from grpo.plugins.host import Host

    tree: dict[str, Any] = {"env": "gsm8k", "dataset": "embedded", "model": str(tiny_model), "rewards": [vowels]}
    tree |= {"train": {"steps": 40, "lr": 1e-3}, "out": str(tmp_path / "run")}
    trainer = PolicyTrainer.__new__(PolicyTrainer)
    trainer.args = grpo_config(make_plan(parse_config(tree), Host.discover()), tmp_path)
    trainer.optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-3)
    trainer.lr_scheduler = None
    steps = trainer.args.get_warmup_steps(40)
    assert steps > 0
    assert trainer.create_scheduler(40).get_last_lr() == pytest.approx([1e-3 / (steps + 1)])
