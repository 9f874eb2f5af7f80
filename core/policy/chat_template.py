"""Renders chat messages by a tokenizer's chat template, and sets its variables as defaults in the template itself."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from grpo.plugins.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Value = bool | int | float | str
OWN = ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message")  # what every prompt sets
_DEFAULT = "{{%- if {name} is not defined %}}{{%- set {name} = {value} %}}{{%- endif +%}}"
_DEFAULTS = re.compile(r"(?:\{%- if (\w+) is not defined %\}\{%- set \1 = .*? %\}\{%- endif \+%\})+")
_OPENING = re.compile(r"<([A-Za-z][\w:-]*)>|\[([A-Z][A-Z_]*)\]|\u25c1(\w+)\u25b7")
_ROLES = ("assistant", "model", "bot", "ai", "gpt", "response")  # a tag of these begins a message, and no part of it


class RefusedByTemplate(Exception):
    """A chat template, or what renders it, raised something; the text is one line."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy


def rendered(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Any], **options: Any) -> Any:
    """Returns what `apply_chat_template` makes of messages; RefusedByTemplate for whatever a template raises."""
    from jinja2 import TemplateError

    try:
        return tokenizer.apply_chat_template(list(messages), **options)
    except Exception as error:
        templates = tokenizer.chat_template
        if isinstance(templates, dict) and "default" not in templates:
            raise RefusedByTemplate(
                f"the tokenizer has several ({', '.join(templates)}) and none of the name 'default'",
                "Give one of them that name in its tokenizer_config.json.",
            ) from None
        kind = "" if isinstance(error, TemplateError) else f"{type(error).__name__}: "
        raise RefusedByTemplate(kind + " ".join(str(error).split())) from None


def set_variables(tokenizer: PreTrainedTokenizerBase, variables: Mapping[str, Value]) -> None:
    """Makes values the defaults of a template's variables. Raises UsageError if the template reads no such variable."""
    templates: Any = tokenizer.chat_template
    named = templates if isinstance(templates, dict) else {"default": templates}
    words = {word for template in named.values() for word in re.findall(r"[A-Za-z_]\w*", _code(template))}
    for name in variables:
        if name in OWN:
            raise UsageError(f"--chat-template-kwargs {name} is set by each prompt itself. Leave it out.")
        if name not in words:
            close = did_you_mean(name, words - {*OWN})
            raise UsageError(
                f"--chat-template-kwargs: the model's chat template reads no variable '{name}'.{close} Leave it out, "
                "or choose a model whose template does."
            )
    head = "".join(_DEFAULT.format(name=name, value=json.dumps(value)) for name, value in variables.items())
    changed = {key: head + template for key, template in named.items()}
    tokenizer.chat_template = changed if isinstance(templates, dict) else changed["default"]


def without_variables(template: str) -> str:
    """Returns a template as it was before `set_variables`."""
    return _DEFAULTS.sub("", template, count=1) if _DEFAULTS.match(template) else template


def texts_of(tokenizer: PreTrainedTokenizerBase, turns: Sequence[Sequence[int]]) -> list[str]:
    """Returns the policy's turns as texts without special tokens.

    A text begins with the block (`<think>`) that the template opened, if the policy closes it: layouts need whole
    messages.
    """
    texts = tokenizer.batch_decode([list(ids) for ids in turns], skip_special_tokens=True)
    opening, closing = opened_block(tokenizer)
    return [opening + text if opening and closing in text else text for text in texts]


def opened_block(tokenizer: PreTrainedTokenizerBase) -> tuple[str, str]:
    """Returns how the template opens a block in the policy's next message (by no special token), and what closes it."""
    asked = [{"role": "user", "content": "USER"}]
    try:
        before = str(rendered(tokenizer, asked, tokenize=False)).removesuffix(str(tokenizer.eos_token))
        whole = str(rendered(tokenizer, asked, tokenize=False, add_generation_prompt=True))
    except RefusedByTemplate:  # what refuses a prompt of its own is said where prompts are made
        return "", ""
    begun = whole[len(before) :] if whole.startswith(before) else ""
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    for match in reversed(list(_OPENING.finditer(begun))):
        tag, name = match[0], match[1] or match[2] or match[3]
        closing = f"{tag[0]}/{tag[1:]}"
        if tag not in special and name.lower() not in _ROLES:
            return ("", "") if closing in begun[match.end() :] else (begun[match.start() :], closing)
    return "", ""


def _code(template: str) -> str:
    return re.sub(r"'[^']*'|\"[^\"]*\"", " ", " ".join(re.findall(r"\{[{%](.*?)[%}]\}", template, re.DOTALL)))
