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
from functools import partial
from pathlib import Path
from typing import Any

from grpo.core.config.defaults import (
    DEFAULT_LR,
    EMBEDDED_COMPLETION,
    EMBEDDED_STEPS,
    EPOCHS,
    LORA_LR_FACTOR,
    MADE_EPISODES,
    NAMED_COMPLETION,
    NAMED_MICRO_BATCH,
    SAVE_EVERY,
    WARMUP_LR_FACTOR,
    default_dtype,
)
from grpo.core.config.schema import RunConfig
from grpo.core.env.episodes import Episode, episodes_of
from grpo.core.env.mixture import (
    RunEnv,
    bound_envs,
    refuse_missing_columns,
    refuse_split_groups,
    rewards_by_env,
    verifiers_by_env,
)
from grpo.core.env.prompts import encode_starts
from grpo.core.plan import Plan
from grpo.core.planning.backends import correction_of, refuse_impossible_rollouts, refuse_unfit_server
from grpo.core.planning.memory.budget import fastest_checkpointing, refuse_no_room
from grpo.core.planning.turns import turn_note, with_turns
from grpo.core.policy.load import (
    PolicySource,
    count_parameters,
    load_model_config,
    load_tokenizer,
    policy_source,
    refuse_impossible_lora,
    refuse_unknown_targets,
)
from grpo.core.record.disk import refuse_readonly, refuse_unwritable
from grpo.core.rollout.types import context_length, refuse_unsafe_rope
from grpo.core.scoring.known import canaries_of
from grpo.plugins.binding import BoundEnv
from grpo.plugins.errors import DatasetError, UsageError
from grpo.plugins.host import Host
from grpo.plugins.soundness import version_note

RUNS = Path("runs")  # where run directories appear that the user does not name
ADAM_BYTES = 8  # two float32 moments per trained parameter
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


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
    envs = bound_envs(config, host)
    host.rewards(config.rewards)  # whatever is wrong with them is said before rows are read
    if config.verifier is not None:
        host.verifier(config.verifier)
    config = _with_batch(config, source, processes)
    refuse_impossible_lora(config.lora)
    if config.train.dtype == "float16" and not config.lora.enabled:
        raise UsageError(
            "train.dtype='float16' with full fine-tuning: Adam's squared gradients are too small for float16. Use "
            "bfloat16 or float32, or train an adapter with --lora."
        )
    refuse_impossible_rollouts(config)
    refuse_missing_trackers(config.output.report_to)
    if fresh and config.out is not None:
        refuse_unwritable(config.out)
    elif fresh:
        refuse_readonly(RUNS)

    parts, config = _started(config, host, envs, source)
    for part in parts:
        for episode in (*part.train, *part.held_out):
            refuse_missing_columns(episode, part.plugins)
    rewards = tuple(reward for part in parts for reward in part.rewards)
    verifiers = [part.verifier for part in parts if part.verifier is not None]
    refuse_split_groups(rewards, config.train.prompts_per_step, processes)
    canaries = canaries_of(config.canaries.file, config.canaries.cases, rewards, verifiers)
    if config.train.warmup_steps:
        _refuse_no_demonstrations(parts)

    model_config = load_model_config(source.path)
    refuse_unsafe_rope(model_config)
    refuse_unknown_targets(config.lora, model_config)
    longest = max(
        check_prompts(config, part.env, source.path, model_config, {"train": part.train, "test": part.held_out})
        for part in parts
    )
    config = with_turns(config, envs, model_config, longest)
    tokenizer = load_tokenizer(source.path)
    notes = [turn_note(config, part.env, tokenizer, part.train) or "" for part in parts]
    notes += [part.env.spec.note for part in parts]
    notes += [version_note(bound.spec) for part in parts for bound in (part.env, *part.plugins)]
    if config.train.checkpointing == "auto":
        config = _update(config, train={"checkpointing": fastest_checkpointing(config, model_config, longest)})
    if config.train.check_memory:
        refuse_no_room(config, model_config, longest, processes)
    parameters = count_parameters(model_config)
    plan = Plan(
        config=config,
        source=source,
        envs=parts,
        train=tuple(episode for part in parts for episode in part.train),
        parameters=parameters,
        longest_prompt=longest,
        disk_bytes=_disk_bytes(config, parameters),
        processes=processes,
        canaries=canaries,
        notes=tuple(dict.fromkeys(filter(None, notes))),
    )
    refuse_unfit_server(plan)
    return plan


def _started(
    config: RunConfig, host: Host, envs: Sequence[BoundEnv], source: PolicySource
) -> tuple[tuple[RunEnv, ...], RunConfig]:
    """Starts the episodes of every environment, and chooses how long the run is.

    The environments that have rows come first: the steps follow from them, and how many episodes the others make
    follows from the steps, so that a resumed run makes as many.
    """
    several, limit, per_step = len(envs) > 1, config.train.limit, config.train.prompts_per_step
    started = partial(episodes_of, seconds=config.rollout.step_timeout)
    shares = [env.weight / sum(env.weight for env in envs) for env in envs]
    rows = {
        env.name: tuple(started(env, "train", limit=limit, unbounded=0)) for env in envs if env.spec.dataset is not None
    }
    of_rows = sum(share for env, share in zip(envs, shares, strict=True) if env.name in rows)
    made = limit or max(MADE_EPISODES, per_step * (config.train.steps or EMBEDDED_STEPS))
    config = _with_length(config, source, math.ceil(sum(map(len, rows.values())) / of_rows) if rows else made)
    assert config.train.steps is not None
    if several:
        made = limit or max(MADE_EPISODES, per_step * config.train.steps)
    for env in envs:
        if env.name not in rows:
            rows[env.name] = tuple(started(env, "train", limit=made, unbounded=made))
    if not several and envs[0].spec.dataset is None:  # recorded, so that it is the same whatever its steps
        config = _update(config, train={"limit": made})
    examples = [rows[env.name][0].row for env in envs]
    rewards = rewards_by_env(config, host, envs, examples)
    verifiers = verifiers_by_env(config, host, envs, examples)
    parts = []
    for env, found, verifier, share in zip(envs, rewards, verifiers, shares, strict=True):
        if not found:
            raise UsageError(f"env '{env.name}' has no default rewards. Name at least one with --reward.")
        size = config.evaluation.size
        held_out = tuple(started(env, "test", limit=size, unbounded=size)) if size and verifier else ()
        parts.append(RunEnv(env, found, verifier, rows[env.name], held_out, share))
    return tuple(parts), config


def refuse_missing_trackers(trackers: Sequence[str]) -> None:
    """Refuses trackers that are not installed.

    Raises:
        UsageError: names the first one and how to install it.
    """
    for tracker in trackers:
        if importlib.util.find_spec(tracker) is None:
            raise UsageError(f"--report-to {tracker}: it is not installed. Install it with: pip install {tracker}")


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
            generations = max(1, math.ceil((train.epochs or EPOCHS) * rows / train.prompts_per_step))
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
            "dtype": train.dtype or default_dtype(config.model),
        },
        output={"save_every": save_every},
        rollout={"max_completion_length": completion},
        loss={"rollout_correction": correction_of(config)},
    )


def _update(config: RunConfig, **sections: dict[str, Any]) -> RunConfig:
    changed = {name: getattr(config, name).model_copy(update=values) for name, values in sections.items()}
    return config.model_copy(update=changed)


def _refuse_no_demonstrations(parts: Sequence[RunEnv]) -> None:
    if not any(episode.actions for part in parts for episode in part.train):
        names = ", ".join(f"'{part.name}'" for part in parts)
        raise UsageError(f"--warmup-steps needs worked answers, and env {names} has none for these rows. Leave it out.")


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
        if len({*map(tuple, prompts)}) == 1 < len({json.dumps(episode.prompt) for episode in episodes}):
            raise UsageError(
                f"the chat template of '{source}' makes one and the same prompt of every row of env '{env.name}': it "
                "shows the policy nothing of their messages. Mend the template, or choose another model."
            )
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
