"""Prompts as the policy reads them: chat messages of episodes in, token ids by the chat template out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from grpo.core.env.episodes import Episode
from grpo.core.policy.chat_template import RefusedByTemplate, rendered
from grpo.plugins.errors import UsageError
from grpo.plugins.types import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def encode_starts(tokenizer: PreTrainedTokenizerBase, episodes: Sequence[Episode]) -> list[list[int]]:
    """Returns the token ids of the prompts of episodes, each with the tools that its environment offers.

    Raises:
        UsageError: the template refuses the messages.
    """
    return [
        ids
        for tools, group in groupby(episodes, key=lambda episode: episode.tools)
        for ids in encode_prompts(tokenizer, [episode.prompt for episode in group], tools)
    ]


def encode_prompts(
    tokenizer: PreTrainedTokenizerBase, prompts: Sequence[Sequence[Message]], tools: Sequence[Mapping[str, Any]] = ()
) -> list[list[int]]:
    """Renders chat messages with the tokenizer's template and returns their token ids, generation prompt included.

    Args:
        tokenizer: of the policy.
        prompts: chat messages.
        tools: schemas of the functions that the policy may call.

    Raises:
        UsageError: the template refuses the messages.
    """
    if not prompts:
        return []
    try:
        encoded = rendered(
            tokenizer,
            [list(prompt) for prompt in prompts],
            tools=list(tools) or None,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
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
    return [list(ids) for ids in encoded["input_ids"]]
