"""How long prompts and completions are: episodes and a model's tokenizer in, checked lengths in tokens out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from grpo.core.config.defaults import default_completion
from grpo.core.config.schema import RunConfig
from grpo.core.config.settings import SectionName
from grpo.core.env.episodes import Episode
from grpo.core.env.mixture import RunEnv
from grpo.core.env.prompts import encode_starts
from grpo.core.planning.facts import Facts, ModelFacts
from grpo.plugins._binding import BoundEnv
from grpo.plugins.errors import DatasetError, UsageError


@dataclass(frozen=True, slots=True)
class LengthsPart:
    """The part of the settings that is decided here."""

    section: ClassVar[SectionName] = "rollout"
    max_completion_length: int


def decide_lengths(config: RunConfig, facts: Facts) -> LengthsPart:
    """Chooses where a completion is cut."""
    chosen = config.rollout.max_completion_length
    return LengthsPart(chosen or default_completion(embedded=facts.source.embedded))


def longest_of(config: RunConfig, envs: Sequence[RunEnv], model: ModelFacts, lengths: LengthsPart) -> int:
    """Checks the prompts of all environments of a run and returns the length of the longest one in tokens.

    Raises:
        DatasetError: names the row and the remedy.
        UsageError: the tokenizer belongs to another model, or its template shows no message.
    """
    most, taught = config.rollout.max_prompt_length, config.train.warmup_steps > 0
    return max(
        longest_prompt(model, part.env, {"train": part.train, "test": part.held_out}, lengths, most=most, taught=taught)
        for part in envs
    )


def longest_prompt(
    model: ModelFacts,
    env: BoundEnv,
    splits: Mapping[str, Sequence[Episode]],
    lengths: LengthsPart,
    *,
    most: int | None = None,
    taught: bool = False,
) -> int:
    """Checks every prompt of an environment against its limits.

    Args:
        model: whose context they have to fit, and whose tokens they become.
        env: for messages.
        splits: split name to its episodes.
        lengths: where completions are cut.
        most: tokens that a prompt may have, or None for whatever fits.
        taught: the worked answers of the split "train" are learned.

    Returns:
        The length of the longest prompt in tokens.

    Raises:
        DatasetError: names the row and the remedy.
        UsageError: the tokenizer belongs to another model, or its template shows no message.
    """
    tokenizer, source, context = model.tokenizer, model.tokenizer_source, model.context
    completion = lengths.max_completion_length
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
        for episode, length in zip(episodes, map(len, prompts), strict=True):
            longest = max(longest, length)
            where = f"env '{env.name}', split '{split}', row {episode.index}: the prompt has {length} tokens"
            if most is not None and length > most:
                raise DatasetError(f"{where}, over rollout.max_prompt_length {most}. Raise it or drop the row.")
            if context is not None and length + completion > context:
                lower = (
                    f"Lower rollout.max_completion_length to {context - length} or drop" if length < context else "Drop"
                )
                raise DatasetError(
                    f"{where} and rollout.max_completion_length is {completion}: together over the model's context of "
                    f"{context}. {lower} the row."
                )
            if context is not None and taught and split == "train" and episode.actions:
                texts = [action if isinstance(action, str) else json.dumps(action) for action in episode.actions]
                answers = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
                answer = sum(1 + len(ids) for ids in answers)
                if length + answer > context:
                    raise DatasetError(
                        f"{where} and its worked answer {answer}: together over the model's context of {context}. "
                        "Drop the row, or leave --warmup-steps out."
                    )
    vocabulary = getattr(model.config.get_text_config(), "vocab_size", None)
    if vocabulary is not None and highest >= vocabulary:
        raise UsageError(
            f"the tokenizer of '{source}' makes token {highest}, but the model knows only {vocabulary}: the two do not "
            "belong together. Name a folder that has both from one model."
        )
    return longest
