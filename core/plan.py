"""Everything that is decided and refused before a model loads.

In: a `RunConfig` and the host. Out: a `Plan`: the configuration with every open value chosen, the bound plugins, the
episodes, and what the run will cost on disk. Whatever cannot work ends here, with the remedy.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo.core.budget import fastest_checkpointing, refuse_no_room
from grpo.core.canaries import Canary, canaries_of
from grpo.core.config import RunConfig
from grpo.core.disk import refuse_readonly, refuse_unwritable
from grpo.core.episodes import Episode, episodes_of
from grpo.core.policy import (
    PolicySource,
    count_parameters,
    encode_starts,
    load_model_config,
    load_tokenizer,
    policy_source,
    refuse_impossible_lora,
    refuse_unknown_targets,
)
from grpo.core.rollout import context_length, refuse_unsafe_rope
from grpo.core.rollout_plan import correction_of, refuse_impossible_rollouts, refuse_unfit_server
from grpo.core.turn_plan import turn_note, with_turns
from grpo.plugins.binding import BoundEnv, BoundReward, BoundVerifier
from grpo.plugins.errors import DatasetError, UsageError
from grpo.plugins.host import Host

RUNS = Path("runs")  # where run directories appear that the user does not name
EMBEDDED_STEPS = 60
EMBEDDED_COMPLETION = 96  # tokens; the longest worked answer of the embedded problems has fewer
NAMED_COMPLETION = 512
NAMED_MICRO_BATCH = 8
SAVE_EVERY = 20
DEFAULT_LR = {"embedded": 3e-5, "named": 1e-6}
LORA_LR_FACTOR = 10.0  # an adapter wants about ten times the learning rate of full fine-tuning
WARMUP_LR_FACTOR = 10.0  # and supervised steps about ten times that of policy-gradient steps
ADAM_BYTES = 8  # two float32 moments per trained parameter
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Plan:
    """A run that can start.

    Attributes:
        config: the configuration; no value that the run needs is None any more.
        source: where the policy comes from.
        env: the environment with its options.
        rewards: the rewards with options, weights and names.
        verifier: what decides accuracy, or None.
        train, held_out: episodes; `held_out` is empty when evaluation is off or the environment has no test rows.
        parameters: of the model.
        longest_prompt: in tokens, over both splits.
        disk_bytes: what checkpoints and the final model take.
        processes: how many processes train together.
        canaries: known completions to watch the rewards with.
        note: something about the model that the user should know, or None.
    """

    config: RunConfig
    source: PolicySource
    env: BoundEnv
    rewards: tuple[BoundReward, ...]
    verifier: BoundVerifier | None
    train: tuple[Episode, ...]
    held_out: tuple[Episode, ...]
    parameters: int
    longest_prompt: int
    disk_bytes: int
    processes: int
    canaries: tuple[Canary, ...] = ()
    note: str | None = None

    @property
    def batch_size(self) -> int:
        """Completions per generation, over all processes."""
        return self.config.train.prompts_per_step * self.config.train.group_size

    @property
    def longest_sampled(self) -> int:
        """The most tokens that the policy chooses in one rollout."""
        assert self.config.rollout.max_completion_length is not None
        return self.config.rollout.max_completion_length * (self.config.rollout.max_turns or 1)

    @property
    def accumulation(self) -> int:
        """Micro batches per optimizer step and process."""
        assert self.config.train.micro_batch_size is not None
        return self.batch_size // (self.config.train.micro_batch_size * self.processes)


def make_plan(config: RunConfig, host: Host, *, fresh: bool = True) -> Plan:
    """Decides and checks everything that can be decided without weights.

    Args:
        config: what the user asked for.
        host: the plugins.
        fresh: the run directory must not exist yet; False for a run that resumes.

    Raises:
        UsageError: something cannot work; the message names it and the remedy.
    """
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    source = policy_source(config.model)
    env = with_dataset(host.env(config.env), config)
    rewards = tuple(host.rewards(config.rewards) if config.rewards else host.default_rewards(env))
    if not rewards:
        raise UsageError(f"env '{env.name}' has no default rewards. Name at least one with --reward.")
    verifier = host.default_verifier(env)
    config = _with_batch(config, source, processes)
    refuse_impossible_lora(config.lora)
    refuse_impossible_rollouts(config)
    refuse_missing_trackers(config.output.report_to)
    if fresh and config.out is not None:
        refuse_unwritable(config.out)
    elif fresh:
        refuse_readonly(RUNS)

    per_generation = config.train.prompts_per_step
    unbounded = max(1000, per_generation * (config.train.steps or EMBEDDED_STEPS))
    train = tuple(episodes_of(env, "train", limit=config.train.limit, unbounded=unbounded))
    held_out: tuple[Episode, ...] = ()
    if config.evaluation.size and verifier is not None:
        held_out = tuple(episodes_of(env, "test", limit=config.evaluation.size, unbounded=config.evaluation.size))
    for episode in (*train, *held_out):
        refuse_missing_columns(episode, rewards, verifier)
    canaries = canaries_of(config.canaries.file, config.canaries.cases, rewards, verifier)
    if env.spec.dataset is None:  # recorded, so that a resumed run starts the same episodes whatever its steps
        config = _update(config, train={"limit": len(train)})
    if config.train.warmup_steps:
        _refuse_no_demonstrations(env, train)
    config = _with_length(config, source, len(train))

    model_config = load_model_config(source.path)
    refuse_unsafe_rope(model_config)
    refuse_unknown_targets(config.lora, model_config)
    longest = check_prompts(config, env, source.path, model_config, {"train": train, "test": held_out})
    config = with_turns(config, env, model_config, longest)
    note = turn_note(config, env, load_tokenizer(source.path), train)
    if config.train.checkpointing == "auto":
        config = _update(config, train={"checkpointing": fastest_checkpointing(config, model_config, longest)})
    if config.train.check_memory:
        refuse_no_room(config, model_config, longest, processes)
    parameters = count_parameters(model_config)
    plan = Plan(
        config=config,
        source=source,
        env=env,
        rewards=rewards,
        verifier=verifier,
        train=train,
        held_out=held_out,
        parameters=parameters,
        longest_prompt=longest,
        disk_bytes=_disk_bytes(config, parameters),
        processes=processes,
        canaries=canaries,
        note=note,
    )
    refuse_unfit_server(plan)
    return plan


def refuse_missing_trackers(trackers: Sequence[str]) -> None:
    """Refuses trackers that are not installed.

    Raises:
        UsageError: names the first one and how to install it.
    """
    for tracker in trackers:
        if importlib.util.find_spec(tracker) is None:
            raise UsageError(f"--report-to {tracker}: it is not installed. Install it with: pip install {tracker}")


def row_order(rows: int, wanted: int, seed: int, *, ordered: bool = False) -> list[int]:
    """Returns `wanted` row numbers: one shuffled pass after another, the same for the same seed.

    With `ordered` it is one pass from the first row to the last, with even gaps or repetitions. The whole run's order
    is fixed up front, so a resumed run continues exactly where it was.
    """
    import random

    if ordered:
        return [number * rows // wanted for number in range(wanted)]
    generator = random.Random(seed)
    order: list[int] = []
    while len(order) < wanted:
        order += generator.sample(range(rows), rows)
    return order[:wanted]


def with_dataset(env: BoundEnv, config: RunConfig) -> BoundEnv:
    """Sets the environment's `dataset` option from --dataset, or to the hub's rows when the user names a model.

    Raises:
        UsageError: a dataset is named, and the environment has no such option.
    """
    defaults = {option.name: option.default for option in env.spec.options}
    value = config.dataset
    if (
        value is None
        and config.model is not None
        and env.options.get("dataset", defaults.get("dataset")) == defaults.get("dataset")
    ):
        value = env.spec.hub_dataset
    if value is None:
        return env
    if "dataset" not in defaults:
        raise UsageError(f"env '{env.name}' has no option 'dataset', so --dataset {value} cannot be used with it.")
    return replace(env, options={**env.options, "dataset": value})


def _with_batch(config: RunConfig, source: PolicySource, processes: int) -> RunConfig:
    train = config.train
    total = train.prompts_per_step * train.group_size
    if total % processes:
        raise UsageError(
            f"{train.prompts_per_step} prompts x {train.group_size} completions = {total} cannot be shared by "
            f"{processes} processes. Choose train.prompts_per_step so that the product is a multiple of {processes}."
        )
    share = total // processes
    micro = train.micro_batch_size
    if micro is None:
        most = share if source.embedded else min(NAMED_MICRO_BATCH, share)
        micro = max(size for size in range(1, most + 1) if share % size == 0)
    elif share % micro:
        raise UsageError(
            f"train.micro_batch_size {micro} does not divide the {share} completions of each process "
            f"({train.prompts_per_step} prompts x {train.group_size} completions / {processes} processes). "
            f"Choose one of {', '.join(str(n) for n in range(1, share + 1) if share % n == 0)}."
        )
    return _update(config, train={"micro_batch_size": micro})


def _with_length(config: RunConfig, source: PolicySource, rows: int) -> RunConfig:
    """Chooses steps, learning rates, lengths and the save interval where the user left them open."""
    train, iterations = config.train, config.loss.num_iterations
    steps = train.steps
    if steps is None:
        if source.embedded and train.epochs is None:
            steps = EMBEDDED_STEPS
        else:
            generations = max(1, math.ceil((train.epochs or 1.0) * rows / train.prompts_per_step))
            steps = generations * iterations
    lr = train.lr
    if lr is None:
        lr = DEFAULT_LR["embedded" if source.embedded else "named"] * (LORA_LR_FACTOR if config.lora.enabled else 1.0)
    save_every = config.output.save_every
    if save_every is None:
        save_every = math.ceil(SAVE_EVERY / iterations) * iterations
    elif save_every % iterations:
        raise UsageError(
            f"output.save_every {save_every} is not a multiple of loss.num_iterations {iterations}: a checkpoint "
            f"between two passes over a batch could not resume. Choose {-(-save_every // iterations) * iterations}."
        )
    completion = config.rollout.max_completion_length or (EMBEDDED_COMPLETION if source.embedded else NAMED_COMPLETION)
    return _update(
        config,
        train={
            "steps": steps,
            "lr": lr,
            "warmup_lr": train.warmup_lr or lr * WARMUP_LR_FACTOR,
            "dtype": train.dtype or default_dtype(config),
        },
        output={"save_every": save_every},
        rollout={"max_completion_length": completion},
        loss={"rollout_correction": correction_of(config)},
    )


def default_dtype(config: RunConfig) -> str:
    """Returns bfloat16 for a model of the user's own on a GPU, else float32."""
    import torch

    return "bfloat16" if torch.cuda.is_available() and config.model is not None else "float32"


def _update(config: RunConfig, **sections: dict[str, Any]) -> RunConfig:
    changed = {name: getattr(config, name).model_copy(update=values) for name, values in sections.items()}
    return config.model_copy(update=changed)


def refuse_missing_columns(episode: Episode, rewards: Sequence[BoundReward], verifier: BoundVerifier | None) -> None:
    """Refuses rows that lack a column which a reward or the verifier needs.

    Raises:
        UsageError: names the plugin and the columns.
    """
    for bound in (*rewards, *([verifier] if verifier else [])):
        missing = [c.name for c in bound.spec.columns if c.required and c.name not in episode.row]
        if missing:
            raise UsageError(
                f"{bound.spec.kind} '{bound.name}' needs the column{'s' if len(missing) > 1 else ''} "
                f"{', '.join(missing)}, but row {episode.index} has: {', '.join(episode.row) or 'none'}."
            )


def _refuse_no_demonstrations(env: BoundEnv, train: Sequence[Episode]) -> None:
    if not any(episode.actions for episode in train):
        raise UsageError(
            f"--warmup-steps needs worked answers, and env '{env.name}' has none for these rows. Leave it out."
        )


def check_prompts(
    config: RunConfig, env: BoundEnv, source: str, model_config: Any, splits: Mapping[str, Sequence[Episode]]
) -> int:
    """Checks every prompt against its limits.

    Args:
        config: with `rollout.max_completion_length` chosen.
        env: for messages.
        source: where the tokenizer comes from.
        model_config: the configuration of the model, which may know its context.
        splits: split name to its episodes.

    Returns:
        The length of the longest prompt in tokens.

    Raises:
        DatasetError: names the row and the remedy.
        UsageError: the tokenizer belongs to another model.
    """
    tokenizer = load_tokenizer(source)
    completion = config.rollout.max_completion_length
    assert completion is not None
    context = context_length(model_config)
    longest = 0
    highest = max(tokenizer.eos_token_id, tokenizer.pad_token_id)
    for split, episodes in splits.items():
        prompts = encode_starts(tokenizer, episodes)
        highest = max(highest, *(max(ids, default=0) for ids in prompts), 0)
        lengths = [len(ids) for ids in prompts]
        for episode, length in zip(episodes, lengths, strict=True):
            longest = max(longest, length)
            where = f"env '{env.name}', split '{split}', row {episode.index}: the prompt has {length} tokens"
            limit = config.rollout.max_prompt_length
            if limit is not None and length > limit:
                raise DatasetError(f"{where}, over rollout.max_prompt_length {limit}. Raise it or drop the row.")
            if context is not None and length + completion > context:
                lower = (
                    f"Lower rollout.max_completion_length to {context - length} or drop" if length < context else "Drop"
                )
                raise DatasetError(
                    f"{where} and rollout.max_completion_length is {completion}: together over the model's context of "
                    f"{context}. {lower} the row."
                )
            if context is not None and config.train.warmup_steps and split == "train" and episode.actions:
                texts = [action if isinstance(action, str) else json.dumps(action) for action in episode.actions]
                answers = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
                answer = sum(1 + len(ids) for ids in answers)
                if length + answer > context:
                    raise DatasetError(
                        f"{where} and its worked answer {answer}: together over the model's context of {context}. "
                        "Drop the row, or leave --warmup-steps out."
                    )
    vocabulary = getattr(model_config.get_text_config(), "vocab_size", None)
    if vocabulary is not None and highest >= vocabulary:
        raise UsageError(
            f"the tokenizer of '{source}' makes token {highest}, but the model knows only {vocabulary}: the two do not "
            "belong together. Name a folder that has both from one model."
        )
    return longest


def _disk_bytes(config: RunConfig, parameters: int) -> int:
    """Bytes for the kept checkpoints, the one being written and the final model."""
    assert config.train.dtype is not None
    weights = parameters * DTYPE_BYTES[config.train.dtype]
    if config.lora.enabled:  # the adapter's size depends on its targets; a tenth of the weights is a generous bound
        weights //= 10
        trained = weights // 4
    else:
        trained = parameters
    checkpoint = weights + trained * ADAM_BYTES
    warmed = weights if config.train.warmup_steps else 0
    return (config.output.keep + 1) * checkpoint + weights + warmed
