"""Renders chat messages with the policy's chat template and tokenises them; special tokens in a text stay text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from grpo.core.env.episodes import Episode
from grpo.core.policy.chat_template import RefusedByTemplate, rendered
from grpo.plugins.errors import UsageError
from grpo.plugins.types import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MARK = "SPELT{}SPELT"  # stands for a special token while a template renders


def encode_episodes(tokenizer: PreTrainedTokenizerBase, episodes: Sequence[Episode]) -> list[list[int]]:
    """Returns the prompts of episodes, with their tools, as token ids. UsageError if the template refuses one."""
    return [
        ids
        for tools, group in groupby(episodes, key=lambda episode: episode.tools)
        for ids in encode_prompts(tokenizer, [episode.prompt for episode in group], tools)
    ]


def encode_prompts(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Sequence[Message]], tools: Sequence[Mapping[str, Any]] = ()
) -> list[list[int]]:
    """Renders chat messages with the tokenizer's template and returns their token ids, generation prompt included."""
    if not prompts:
        return []
    spelt = _spelt(tokenizer)
    marked = [_marked(prompt, spelt) for prompt in prompts]
    try:
        texts: list[str] = rendered(
            tokenizer,
            [messages for messages, _ in marked],
            tools=list(tools) or None,
            add_generation_prompt=True,
            tokenize=False,
        )
    except RefusedByTemplate as error:
        roles = [message["role"] for message in prompts[0]]
        remedy = error.remedy or "Mend the template, or choose another model."
        if "system" in roles and not error.remedy:
            remedy = (
                "Many templates take no system message: set the environment's system message to nothing, or choose "
                "another model."
            )
        raise UsageError(
            f"the model's chat template refuses the messages ({', '.join(roles)}): {error}. {remedy}"
        ) from None
    plain = [text for text, (_, tokens) in zip(texts, marked, strict=True) if not tokens]
    whole = iter(tokenizer(plain, add_special_tokens=False, verbose=False)["input_ids"] if plain else ())
    return [
        _in_pieces(tokenizer, text, tokens) if tokens else list(next(whole))
        for text, (_, tokens) in zip(texts, marked, strict=True)
    ]


def ids_between(
    tokenizer: PreTrainedTokenizerBase, given: Sequence[Any], render: Callable[[list[Any]], str], last: int
) -> list[int]:
    """Returns the tokens from a turn of the policy to its next one, in which special tokens that are given stay text.

    `given`: messages or texts. `render`: makes the text between the turns, from messages with marks for spelt-out
    special tokens. `last`: the last token of the turn; if it ends a message, it is not repeated.
    """
    marked, tokens = _marked(given, _spelt(tokenizer))
    ids = _in_pieces(tokenizer, render(marked), tokens)
    return ids[1:] if ids[:1] == [last] else ids


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Returns the texts that a tokenizer reads as control tokens, the longest first."""
    special = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
    return sorted(filter(None, special), key=len, reverse=True)


def tokens_of(tokenizer: PreTrainedTokenizerBase, text: str, *, plain: bool) -> list[int]:
    """Returns the tokens of a text; with `plain`, special tokens that it spells out are text too."""
    ids: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=plain, verbose=False)["input_ids"]
    return ids


def _spelt(tokenizer: PreTrainedTokenizerBase) -> re.Pattern[str]:
    return re.compile("|".join([*map(re.escape, special_tokens(tokenizer)), _MARK.format("[0-9]+")]))


def _marked(messages: Sequence[Any], spelt: re.Pattern[str]) -> tuple[list[Any], list[str]]:
    """Returns messages with marks in the place of what they spell out (special tokens, and marks), and all of that."""
    tokens: list[str] = []

    def mark(match: re.Match[str]) -> str:
        tokens.append(match[0])
        return _MARK.format(len(tokens) - 1)

    def marked(value: Any) -> Any:
        if isinstance(value, str):
            return spelt.sub(mark, value)
        if isinstance(value, Mapping):
            return {key: marked(inner) for key, inner in value.items()}
        return [marked(inner) for inner in value] if isinstance(value, list | tuple) else value

    return [marked(message) for message in messages], tokens


def _in_pieces(tokenizer: PreTrainedTokenizerBase, text: str, tokens: Sequence[str]) -> list[int]:
    pieces = re.split(_MARK.format("([0-9]+)"), text)
    ids: list[int] = []
    for number, piece in enumerate(pieces):
        if number % 2:
            ids += tokens_of(tokenizer, tokens[int(piece)], plain=True)
        elif piece:
            ids += tokens_of(tokenizer, piece, plain=False)
    return ids
