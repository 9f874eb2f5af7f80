"""Says how long the descriptions of an environment's tools are, which every prompt begins with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from grpo.core.env.prompts import tokens_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from grpo.core.env.mixture import RunEnv

LONG = 1000
"""Tokens from which a run says so."""


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
