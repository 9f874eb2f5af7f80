"""Counts the tokens of prompts and refuses those that do not fit beside a completion.

Of many rows those are counted that were started, the longest by their characters, and every one that could be over a
limit; the others are bounded by the tokens per character of the long ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from grpo.core.config.defaults import default_completion
from grpo.core.config.schema import RunConfig
from grpo.core.env.episodes import Episode, Episodes, sample_of
from grpo.core.env.mixture import RunEnv
from grpo.core.env.prompts import encode_episodes, tokens_of
from grpo.core.planning.facts import Facts, ModelFacts
from grpo.plugins._spec.binding import BoundEnv
from grpo.plugins.errors import DatasetError, UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LONG = 1000  # tokens of the descriptions of tools, from which a run says so
LONGEST = 2048  # prompts by their characters that are counted in tokens, of environments with many rows
_BLOCK = 1024  # prompts that are rendered at once


def decide_lengths(config: RunConfig, facts: Facts) -> int:
    """Returns the tokens after which a completion is cut."""
    return config.rollout.max_completion_length or default_completion(embedded=facts.source.embedded)


@dataclass(frozen=True, slots=True)
class Limits:
    """What prompts have to keep to."""

    completion: int  # tokens after which an answer is cut
    prompt: int | None = None  # the most tokens of a prompt; None: whatever fits
    rollout: int | None = None  # the user's budget of tokens after the prompt, over all turns; None: what fits
    taught: bool = False  # the worked answers of the split "train" are learned
    tools: bool = True  # the environment's tools stand in the prompts; an agent is not shown them
    setting: str = "rollout.max_completion_length"  # what the user sets `completion` with


@dataclass(frozen=True, slots=True)
class _Measured:
    where: str
    length: int
    answer: int = 0  # those of its worked answer, where that is learned
    index: int = 0
    ids: int = 0  # a hash of its tokens
    highest: int = 0


def longest_of(config: RunConfig, envs: Sequence[RunEnv], model: ModelFacts, completion: int) -> int:
    """Checks all prompts and returns the longest one's tokens. Raises DatasetError, which names the row, UsageError."""
    rollout, taught = config.rollout, config.train.warmup_steps > 0
    limits = Limits(
        completion, rollout.max_prompt_length, rollout.max_rollout_length, taught, tools=config.agent is None
    )
    splits = [(part.env, {"train": part.train, "test": part.held_out}) for part in envs]
    try:
        return longest_prompt(model, splits, limits)
    except DatasetError as error:
        notes = [note for part in envs if (note := long_tools(part, model.tokenizer))]
        raise DatasetError(" ".join([str(error), *notes])) from error


def longest_prompt(
    model: ModelFacts, envs: Iterable[tuple[BoundEnv, Mapping[str, Sequence[Episode]]]], limits: Limits
) -> int:
    """Returns the length in tokens of the longest prompt, checked against the limits; of many rows an upper bound.

    `model`: whose context they have to fit, and whose tokens they become. `envs`: each with its episodes by the name of
    their split. Raises DatasetError, which names the row and what would make all fit; UsageError if the tokenizer
    belongs to another model, or its template shows no message.
    """
    lengths: list[_Measured] = []
    most = 0
    for env, splits in envs:
        for split, episodes in splits.items():
            taught = limits.taught and split == "train"
            count = partial(_measured, model, env, split, taught=taught, tools=limits.tools)
            started = sample_of(episodes)
            measured = count(started)
            if len({entry.ids for entry in measured}) == 1 < len({json.dumps(entry.prompt) for entry in started}):
                raise UsageError(
                    f"the chat template of '{model.tokenizer_source}' makes one and the same prompt of every row of "
                    f"env '{env.name}': it shows the policy nothing of their messages. Fix the template, or choose "
                    "another model."
                )
            if isinstance(episodes, Episodes):
                more, most_of_others = _longest_of_many(episodes, measured, count, limits, model.context)
                measured, most = [*measured, *more], max(most, most_of_others)
            lengths += measured
    refuse_too_long(lengths, limits, model.context)
    return max([most, *(entry.length for entry in lengths)])


def sample_notes(envs: Iterable[RunEnv]) -> Iterator[str]:
    """Yields the environments of which not every row was looked at as a prompt."""
    for part in envs:
        if isinstance(part.train, Episodes):
            yield (
                f"env '{part.name}' has {len(part.train):,} rows: {len(part.train.sample):,} of them, spread evenly, "
                f"were tried as prompts before the run, and the {LONGEST:,} longest counted in tokens. The others "
                "become prompts when they are asked."
            )


def refuse_too_long(measured: Sequence[_Measured], limits: Limits, context: int | None) -> None:
    """Refuses prompts that are over a limit, with all that has to change. Raises DatasetError."""
    room = math.inf if context is None else context
    most = limits.prompt or math.inf
    wrong = [entry for entry in measured if entry.length > most or entry.length + limits.completion > room]
    unlearned = [entry for entry in measured if entry.length + entry.answer > room]
    if not wrong and not unlearned:
        return
    problem, remedies, dropped = "", [], 0
    if wrong:
        longest = max(wrong, key=lambda entry: entry.length)
        problem = f"{longest.where}: the prompt has {longest.length} tokens"
        if longest.length > most:
            problem += f", over rollout.max_prompt_length {limits.prompt}"
        if longest.length + limits.completion > room:
            problem += f" and {limits.setting} is {limits.completion}: together over the model's context of {context}"
        problem += f". It is the longest of {len(wrong)} that are too long" if len(wrong) > 1 else ""
        dropped = sum(entry.length >= room for entry in wrong)
        fitting = max((entry.length for entry in measured if entry.length < room), default=0)
        if fitting > most:
            remedies.append(f"raise rollout.max_prompt_length to {fitting}")
        if fitting + limits.completion > room:
            remedies.append(f"lower {limits.setting} to {room - fitting}")
            if limits.rollout is not None and limits.rollout + fitting > room:
                remedies.append(f"rollout.max_rollout_length to {room - fitting}")
        if dropped:
            remedies.insert(0, f"drop the {_rows(dropped)} whose prompt alone fills the context")
    lost = [entry for entry in unlearned if entry.length < room]
    if lost:
        longest = max(lost, key=lambda entry: entry.length + entry.answer)
        text = f"{longest.length} tokens and its worked answer {longest.answer}: together over the model's context"
        problem += ". " if problem else ""
        problem += f"{longest.where}: the prompt has {text} of {context}"
        remedies.append(f"leave --warmup-steps out or drop the {_rows(len(lost))} whose worked answer does not fit")
    advice = " and ".join(remedies)
    also = f" or drop the {_rows(len(wrong))}" if len(wrong) < len(measured) and not (dropped or lost) else ""
    raise DatasetError(f"{problem}. {advice[0].upper()}{advice[1:]}{also}.")


def _rows(number: int) -> str:
    return "row" if number == 1 else f"{number} rows"


def _longest_of_many(
    episodes: Episodes,
    sample: Sequence[_Measured],
    count: Callable[[Sequence[Episode]], list[_Measured]],
    limits: Limits,
    context: int | None,
) -> tuple[list[_Measured], int]:
    """Counts the longest prompts of many rows; returns these, and the most tokens that any other can have."""
    import numpy

    sizes = numpy.asarray(episodes.sizes)
    order = numpy.argsort(-sizes, kind="stable")
    known = {entry.index for entry in sample}
    others = order[LONGEST:]
    counted = count(episodes.some([row for row in order[:LONGEST].tolist() if row not in known]))
    if not len(others):
        return counted, 0
    least = min(entry.length for entry in (*sample, *counted))
    of_size = [(int(sizes[entry.index]), entry.length - least) for entry in (*sample, *counted)]
    rate = max(tokens / max(size, 1) for size, tokens in of_size if 2 * size >= sizes[others[0]])
    room = min(limits.prompt or math.inf, math.inf if context is None else context - limits.completion)
    doubtful = int((least + rate * sizes[others] > room).sum())  # the first of them: they are in order
    wanted = [row for row in others[:doubtful].tolist() if row not in known]
    for first in range(0, len(wanted), _BLOCK):
        counted += count(episodes.some(wanted[first : first + _BLOCK]))
    return counted, least + math.ceil(rate * int(sizes[others[doubtful]])) if doubtful < len(others) else 0


def _measured(
    model: ModelFacts, env: BoundEnv, split: str, episodes: Sequence[Episode], *, taught: bool, tools: bool
) -> list[_Measured]:
    tokenizer, context = model.tokenizer, model.context
    measured: list[_Measured] = []
    for first in range(0, len(episodes), _BLOCK):
        block = episodes[first : first + _BLOCK]
        if not tools:
            block = [replace(episode, tools=()) for episode in block]
        for episode, ids in zip(block, encode_episodes(tokenizer, block), strict=True):
            answer = 0
            if context is not None and taught and episode.actions:
                texts = [action if isinstance(action, str) else json.dumps(action) for action in episode.actions]
                answer = sum(1 + len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts)
            where = f"env '{env.name}', split '{split}', {episode.place}"
            measured.append(_Measured(where, len(ids), answer, episode.index, hash(tuple(ids)), max(ids, default=0)))
    highest = max(tokenizer.eos_token_id, tokenizer.pad_token_id, *(entry.highest for entry in measured), 0)
    vocabulary = getattr(model.config.get_text_config(), "vocab_size", None)
    if vocabulary is not None and highest >= vocabulary:
        raise UsageError(
            f"the tokenizer of '{model.tokenizer_source}' makes token {highest}, but the model knows only "
            f"{vocabulary}: the two do not belong together. Name a folder that has both from one model."
        )
    return measured


def long_tools(part: RunEnv, tokenizer: PreTrainedTokenizerBase) -> str:
    """Returns a note for an environment whose tools take many tokens of every prompt, else ""."""
    tools = part.train[0].tools
    texts = {tool["function"]["name"]: json.dumps(tool, ensure_ascii=False) for tool in tools}
    tokens = len(tokens_of(tokenizer, "\n".join(texts.values()), plain=True))
    if tokens < LONG:
        return ""
    longest = max(texts, key=lambda name: len(texts[name]))
    less = (
        'Pick the tools that the task needs, as in mcp={"command": ..., "tools": [...]}.'
        if part.env.servers
        else "Shorten their docstrings, or offer fewer."
    )
    return (
        f"env '{part.name}': every prompt begins with the descriptions of {len(tools)} tools, about {tokens:,} tokens "
        f"({sum(map(len, texts.values())):,} characters; the longest, '{longest}', has {len(texts[longest]):,}). {less}"
    )
