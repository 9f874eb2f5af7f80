"""Defines the form of requests and answers that all APIs are converted to.

Requests are compared without what programs change: ids, spelling of arguments, marks for caches, None for "", blanks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from grpo.core.text.printable import one_line

Role = Literal["system", "user", "assistant", "tool"]
Finish = Literal["stop", "length", "calls"]


@dataclass(frozen=True, slots=True)
class ToolUse:
    name: str
    arguments: Mapping[str, Any]  # as parsed JSON
    # by which an answer names it. Programs show ids to the policy (smolagents writes them into its messages, others
    # name files after them), so a desk gives ids that are the same when a run is repeated
    id: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ChatTurn:
    role: Role  # who speaks; a developer's message is a system message
    text: str  # what is said, "" for nothing; what an assistant says is without blanks at its ends
    calls: tuple[ToolUse, ...] = ()
    answers: str = field(default="", compare=False)  # the id of the call that a tool message answers


@dataclass(frozen=True, slots=True)
class Ask:
    messages: tuple[ChatTurn, ...]
    # schemas in the form {"type": "function", "function": {"name", "description", "parameters"}}
    tools: tuple[Mapping[str, Any], ...] = ()
    model: str = ""
    max_tokens: int | None = None  # the most tokens to sample; None: no limit of the program's own
    stop: tuple[str, ...] = ()  # texts that end an answer and are not part of it
    count: int = 1
    stream: bool = False  # whether the answer is to be sent in events
    usage: bool = False  # whether these are to tell how many tokens there were, where the API leaves that open
    thread: str = ""  # which of its own conversations the program says that this is ("" where it does not say)
    ignored: tuple[str, ...] = ()  # parameters that the run decides or that are not supported, for the record


@dataclass(frozen=True, slots=True)
class Reply:
    turn: ChatTurn
    finish: Finish  # why it ended: the policy ended it, a limit of tokens, or calls of tools
    prompt_tokens: int
    sampled_tokens: int
    stopped_by: str | None = None  # the text of `Ask.stop` that ended it; None: another reason


class Answered(Protocol):
    """The answers to a request, and whether they reached the program."""

    @property
    def replies(self) -> tuple[Reply, ...]:
        """As many as were asked for."""
        ...

    def delivered(self) -> None:
        """Notes that the whole answer was sent to a client that was still there; only such answers are trained."""
        ...


class Refused(Exception):
    """A request that gets no answer.

    `status`: of HTTP: 400 for what cannot be answered or an ended episode, 401 for an unknown key, 404 for another
    model, 413 for too many bytes. `code`: one word that clients look at, such as `context_length_exceeded`.
    """

    def __init__(self, status: int, message: str, code: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def refuse_other_model(ask: Ask, model: str) -> None:
    """Raises Refused for a request to another model than the policy, ignoring a provider before its name."""
    if ask.model.rpartition("/")[2] != model.rpartition("/")[2]:
        message = f"there is no model '{one_line(ask.model)}'; there is: {model}. OPENAI_MODEL and access.model name it"
        raise Refused(404, message, "model_not_found")


class Desk(Protocol):
    """Answers requests. All is called in the event loop of the gateway."""

    model: str

    def known(self, key: str) -> bool:
        """Returns whether an episode, running or ended, has this key."""
        ...

    async def ask(self, key: str, ask: Ask) -> Answered:
        """Answers a request, however long it takes; a client that goes away cancels it. Raises Refused and why."""
        ...

    def count(self, key: str, ask: Ask) -> int:
        """Returns how many tokens a request's prompt has. Raises Refused as `ask`."""
        ...

    def note(self, key: str, refused: Refused) -> None:
        """Notes that a request of a known key was refused, here or before."""
        ...


class Dialect(Protocol):
    """An API; each is a module with these functions."""

    def read(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> Ask:
        """Reads a request. Raises Refused if it is malformed, or asks for what the policy cannot do."""
        ...

    def whole(self, ask: Ask, replies: Sequence[Reply]) -> Mapping[str, Any]:
        """Returns the JSON of an answer that is not streamed."""
        ...

    def events(self, ask: Ask, replies: Sequence[Reply]) -> bytes:
        """Returns all server-sent events of an answer."""
        ...

    def error(self, refused: Refused) -> Mapping[str, Any]:
        """Returns the JSON of an error."""
        ...

    def error_events(self, refused: Refused) -> bytes:
        """Returns the events that end a stream with an error."""
        ...
