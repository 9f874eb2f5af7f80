"""Finds the tokens that a chat template puts between two turns of the policy.

Theory of operation. Nothing that the policy said is rendered or tokenised again. After a turn only the text between is
added: the end of the policy's message, the observation as a user message, the start of the policy's next message. It is
found once, by rendering a conversation with markers. A template that renders the prompt differently once the
conversation goes on is refused, since it would show the policy another prompt than it answered. One that only rewrites
what the policy said earlier (it drops earlier thinking) is used; the note says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from grpo.core.env.prompts import ids_between
from grpo.core.policy.chat_template import RefusedByTemplate, rendered
from grpo.plugins.errors import UsageError
from grpo.plugins.types import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SAID = ("SAID0SAID", "SAID1SAID")
SEEN = ("SEEN0SEEN", "SEEN1SEEN")
BLANKS = " \n "
THOUGHT = "<think>\nTHOUGHT\n</think>\n\n"


@dataclass(frozen=True, slots=True)
class TurnFormat:
    before: str  # ends the policy's message and begins the observation's
    after: str  # ends the observation's message and begins the policy's next one
    # how the template would rewrite what the policy said earlier, or None when it leaves that alone
    note: str | None = None
    # whether the template leaves out the blanks that an observation begins with, and those at its end
    trims: tuple[bool, bool] = (False, False)

    def ids(self, tokenizer: PreTrainedTokenizerBase, observation: str, last: int) -> list[int]:
        """Returns the tokens from the last token of a turn, over what the environment answered, to the next turn."""
        observation = observation.lstrip() if self.trims[0] else observation
        observation = observation.rstrip() if self.trims[1] else observation
        return ids_between(tokenizer, [observation], lambda texts: f"{self.before}{texts[0]}{self.after}", last)


def turn_format(
    tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
) -> TurnFormat:
    """Finds the text between two turns of a conversation that begins with `prompt`. Raises UsageError."""
    render = partial(rendered_text, tokenizer, tools=tools, refused=_refused)
    end = str(tokenizer.eos_token)  # with which some templates close a conversation
    start = [dict(message) for message in prompt]
    first = [*start, _message("assistant", SAID[0]), _message("user", SEEN[0])]
    second = [*first, _message("assistant", SAID[1]), _message("user", SEEN[1])]
    wide = [*first[:-1], _message("user", BLANKS + SEEN[0] + BLANKS)]
    asked = render(start).removesuffix(end)
    begun = render(start, generate=True)
    once = render(first, generate=True)
    twice = render(second, generate=True)
    before, after = _between(once, SAID[0], SEEN[0])
    if not once.startswith(asked):
        raise _refused("renders the prompt differently once an answer follows it")
    grown = render(first).removesuffix(end)
    if _between(twice, SAID[1], SEEN[1]) != (before, after) or not twice.startswith(grown):
        raise _refused("renders earlier turns differently once the conversation goes on")
    note = _beginning(begun, once) or _thinking(render, start)
    left, right = _between(render(wide, generate=True), SAID[0], SEEN[0])
    return TurnFormat(before, after, note, (left == before, right == after))


def after_text(tokenizer: PreTrainedTokenizerBase, following: Sequence[Mapping[str, Any]]) -> str:
    """Returns what the chat template writes after a text of the policy. UsageError if it refuses the messages."""
    start = [_message("user", SEEN[0]), _message("assistant", SAID[0])]
    whole = rendered_text(tokenizer, [*start, *map(dict, following)], generate=True, refused=_refused)
    if whole.count(SAID[0]) != 1:
        raise _refused("leaves out messages of an earlier turn")
    return whole.partition(SAID[0])[2]


def _beginning(begun: str, once: str) -> str | None:
    if once.startswith(begun) and once[len(begun) :].lstrip().startswith(SAID[0]):
        return None
    return "the chat template begins an earlier message of the policy differently from the one to be written"


def _thinking(render: Callable[..., str], start: list[dict[str, Any]]) -> str | None:
    thinking = [*start, _message("assistant", THOUGHT + SAID[0]), _message("user", SEEN[0])]
    if THOUGHT.strip() in render(thinking, generate=True):
        return None
    return "the chat template drops the thinking of earlier turns"


def _between(rendered: str, spoken: str, observed: str) -> tuple[str, str]:
    if rendered.count(spoken) != 1 or rendered.count(observed) != 1 or rendered.find(spoken) > rendered.find(observed):
        raise _refused("leaves out messages of an earlier turn")
    before, _, after = rendered.partition(spoken)[2].partition(observed)
    return before, after


def rendered_text(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    *,
    refused: Callable[[str], UsageError],
    generate: bool = False,
    tools: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Returns messages as the chat template renders them; raises what `refused` makes of a template's error."""
    try:
        text: str = rendered(
            tokenizer, messages, tools=list(tools) or None, add_generation_prompt=generate, tokenize=False
        )
    except RefusedByTemplate as error:
        roles = ", ".join(message["role"] for message in messages)
        raise refused(f"refuses the messages ({roles}): {error}") from None
    return text


def _message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _refused(what: str) -> UsageError:
    return UsageError(
        f"the model's chat template {what}, so a conversation cannot go on from the tokens that were sampled. Use a "
        "model whose template appends turns, or set the tokenizer's chat_template to one that does."
    )
